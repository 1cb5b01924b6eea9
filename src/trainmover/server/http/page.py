# SPDX-License-Identifier: Apache-2.0
"""The page's files, as `make web` has built them into the package. They say nothing of the run."""

import gzip
from collections.abc import Callable, Coroutine
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from mimetypes import guess_type
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_ROOT = "trainmover.server.http"
_A_YEAR = "public, max-age=31536000, immutable"
"""For files that are named by what is in them."""


def page_routes() -> list[Route]:
    """One for each file, and / for the page itself."""
    pages = files(_ROOT) / "pages"
    found = [] if not pages.is_dir() else list(_walk(pages, ""))
    routes = [Route(f"/{name}", _served(name, file)) for name, file in found]
    return routes + [
        Route("/", _served(name, file)) for name, file in found if name == "index.html"
    ]


def _walk(folder: Traversable, before: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for one in folder.iterdir():
        name = before + one.name
        found += _walk(one, f"{name}/") if one.is_dir() else [(name, one)]
    return sorted(found, key=lambda each: each[0])


def _served(name: str, file: Traversable) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    kind = guess_type(name)[0] or "application/octet-stream"
    cached = {"Cache-Control": _A_YEAR if name.startswith("assets/") else "no-cache"}

    @cache
    def whole() -> bytes:
        return file.read_bytes()

    @cache
    def packed() -> bytes:
        return gzip.compress(whole(), mtime=0)

    async def serve(request: Request) -> Response:
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(whole(), media_type=kind, headers=cached)
        headers = cached | {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(packed(), media_type=kind, headers=headers)

    return serve
