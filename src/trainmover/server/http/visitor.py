"""A connection to the API. Until its first request with the token it is one of a crowd."""

import asyncio
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from trainmover.protocol.crowd import PATIENCE_S, Crowd

HEADERS_BYTES_MAX = 16 * 1024
_VISITOR = "visitor"


class Visitor(H11Protocol):
    """Speaks HTTP, and goes when its time is over or the crowd is too large."""

    def __init__(self, crowd: Crowd[asyncio.Transport], **given: Any) -> None:
        super().__init__(**given | {"app_state": {_VISITOR: self}})
        self._crowd = crowd
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        crowded_out = self._crowd.come(transport, self.loop.time())
        if crowded_out is not None:
            crowded_out.abort()
        self._timer = self.loop.call_later(PATIENCE_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_crowd()
        super().connection_lost(exc)

    def _leave_crowd(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._crowd.go(self.transport)


def proved(scope: Scope) -> None:
    """Whoever sent this request knows the token."""
    scope["state"][_VISITOR]._leave_crowd()


def cut_off(scope: Scope) -> None:
    """Whoever sent this request reads nothing of the answer: the connection ends, now."""
    scope["state"][_VISITOR].transport.abort()
