"""A connection to the API. Until its first request with the token it is unauthenticated."""

import asyncio
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from trainmover.protocol.unauthenticated import PATIENCE_S, Unauthenticated

HEADERS_BYTES_MAX = 16 * 1024
_VISITOR = "visitor"


class Visitor(H11Protocol):
    """Speaks HTTP, and goes when its time is over or too many come that prove nothing."""

    def __init__(self, unknown: Unauthenticated[asyncio.Transport], **given: Any) -> None:
        super().__init__(**given | {"app_state": {_VISITOR: self}})
        self._unauthenticated = unknown
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        pushed_out = self._unauthenticated.come(transport, self.loop.time())
        if pushed_out is not None:
            pushed_out.abort()
        self._timer = self.loop.call_later(PATIENCE_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_known()
        super().connection_lost(exc)

    def _is_known(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._unauthenticated.go(self.transport)


def proved(scope: Scope) -> None:
    """Whoever sent this request knows the token."""
    scope["state"][_VISITOR]._is_known()


def cut_off(scope: Scope) -> None:
    """Whoever sent this request reads nothing of the answer: the connection ends, now."""
    scope["state"][_VISITOR].transport.abort()
