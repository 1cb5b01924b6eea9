# SPDX-License-Identifier: Apache-2.0
"""Answers are JSON, also those that say what is wrong."""

import msgspec
from starlette.responses import Response

from trainmover.server.http.types import Error


def as_json(value: object, status: int = 200) -> Response:
    """As it is now."""
    return encoded(msgspec.json.encode(value), status)


def encoded(data: bytes, status: int = 200) -> Response:
    """Bytes of a value that is JSON already."""
    return Response(data, status_code=status, media_type="application/json")


def refusal(status: int, why: str, *, close: bool = False) -> Response:
    """close: nothing more is heard on this connection."""
    refused = as_json(Error(error=why), status)
    if close:
        refused.headers["Connection"] = "close"
    return refused
