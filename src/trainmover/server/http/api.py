# SPDX-License-Identifier: Apache-2.0
"""Serves one run over HTTP: the API, what Prometheus scrapes, the page. See `endpoints`."""

import asyncio
import contextlib
import socket
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from trainmover.protocol.unauthenticated import QUEUE
from trainmover.server.http.answers import encoded, refusal
from trainmover.server.http.endpoints import ENDPOINTS, V1, Endpoint, Live
from trainmover.server.http.guard import Guard, asker_of, may
from trainmover.server.http.metrics import Metrics
from trainmover.server.http.openapi import document
from trainmover.server.http.page import page_routes
from trainmover.server.http.roles import Roles
from trainmover.server.http.stream import Feed
from trainmover.server.http.visitor import HEADERS_BYTES_MAX, Visitor, Visitors
from trainmover.server.run import Server

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls


class Api:
    """Serves one Server on the running loop, from `start` to `close`. names: of this host, that
    requests may call it by, besides its own and its addresses."""

    def __init__(
        self,
        server: Server,
        token: bytes,
        tls: "Tls | None" = None,
        *,
        names: Collection[str] = (),
    ) -> None:
        self.roles = Roles(token)
        app = _application(server, self.roles, tls is not None, names)
        visitors = Visitors()

        def visitor(**given: Any) -> asyncio.Protocol:
            visitor = Visitor(visitors, **given)
            return visitor if tls is None else tls.behind(visitor, visitors.unknown.heard)

        config = uvicorn.Config(
            app,
            http=visitor,  # type: ignore[arg-type]  # it makes connections
            h11_max_incomplete_event_size=HEADERS_BYTES_MAX,
            backlog=visitors.at_once,
            log_level="critical",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
            ws="none",
        )
        self._uvicorn = _QuietUvicorn(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self, listener: socket.socket) -> None:
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[listener]))
        while not self._uvicorn.started and not self._task.done():
            await asyncio.sleep(0.001)
        if not self._task.done():
            listener.listen(QUEUE)

    async def close(self) -> None:
        """Finish what is being answered, at most a second."""
        self._uvicorn.should_exit = True
        if self._task is not None:
            await self._task


class _QuietUvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the host's business."""
        yield


def _application(server: Server, roles: Roles, tls: bool, names: Collection[str]) -> ASGIApp:
    live = Live(server, roles, Feed(server), Metrics(server))
    pages = page_routes()
    routes: list[BaseRoute] = [*_routes(live), _described(), *pages]
    inner = Starlette(routes=routes, exception_handlers={HTTPException: _refused})
    open_to_all = [(each.method, each.path) for each in ENDPOINTS if each.role is None]
    open_to_all += [(how, page.path) for page in pages for how in ("GET", "HEAD")]
    return Guard(
        inner, roles, tls=tls, open_to_all=open_to_all, names=names, refused=server.turned_away
    )


def _routes(live: Live) -> list[Route]:
    """One for each path, so that a wrong method is told of all that there are."""
    paths: dict[str, dict[str, Endpoint]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [Route(path, _Served(live, its), methods=list(its)) for path, its in paths.items()]


class _Served:
    """An ASGI application, so that an endpoint may answer with a stream. its: by method."""

    def __init__(self, live: Live, its: Mapping[str, Endpoint]) -> None:
        self._live = live
        self._its = its

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._its["GET" if scope["method"] == "HEAD" else scope["method"]]
        if endpoint.role is not None and not may(scope, endpoint.role):
            asker = asker_of(scope)
            self._live.server.turned_away(f"the API refused {endpoint.path} to {asker}")
            why = f"This takes the {endpoint.role.word}'s token; yours is the {asker.role.word}'s."
            await refusal(403, why)(scope, receive, send)
            return
        answer = await endpoint.serve(self._live, Request(scope, receive))
        await answer(scope, receive, send)


def _described() -> Route:
    @cache
    def data() -> bytes:
        return msgspec.json.encode(document(ENDPOINTS))

    async def described(request: Request) -> Response:
        return encoded(data())

    return Route(f"{V1}/openapi.json", described)


async def _refused(request: Request, error: Exception) -> Response:
    """What is wrong with a request, as JSON like all answers."""
    assert isinstance(error, HTTPException)
    refused = refusal(error.status_code, error.detail)
    refused.headers.update(error.headers or {})
    return refused
