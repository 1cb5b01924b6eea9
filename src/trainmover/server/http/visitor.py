# SPDX-License-Identifier: Apache-2.0
"""Connections to the API: how many there may be of whom, and how long each may take.

without proof   the stranger's share, and five seconds in all
of one role     that role's share; a request must be here in time, and what is answered be taken
"""

import asyncio
from collections import Counter
from typing import Any

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from trainmover.descriptors import shares
from trainmover.protocol.unauthenticated import PATIENCE_S, Unauthenticated
from trainmover.server.http.roles import Role

HEADERS_BYTES_MAX = 16 * 1024
REQUEST_S = 10.0
"""From a request's first byte to its last."""
SLOW_S = 10.0
"""For which a peer may take nothing of what it is sent."""
_VISITOR = "visitor"


class Visitors:
    """All connections of one API."""

    def __init__(self) -> None:
        self.at_once = shares().at_once
        self.unknown: Unauthenticated[asyncio.Transport] = Unauthenticated(shares().strangers)
        self._proved_max = shares().proved
        self._proved: Counter[Role] = Counter()

    def enter(self, role: Role) -> bool:
        """Count one more of a role, if its share is not full."""
        if self._proved[role] >= self._proved_max:
            return False
        self._proved[role] += 1
        return True

    def leave(self, role: Role) -> None:
        self._proved[role] -= 1


class Visitor(H11Protocol):
    """One connection. It speaks HTTP, and goes when its time is over or too many strangers come."""

    def __init__(self, visitors: Visitors, **given: Any) -> None:
        super().__init__(**given | {"app_state": {_VISITOR: self}})
        self._visitors = visitors
        self._role: Role | None = None
        self._stranger: asyncio.TimerHandle | None = None
        self._request: asyncio.TimerHandle | None = None
        self._answer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        pushed_out = self._visitors.unknown.come(transport, self.loop.time())
        if pushed_out is not None:
            pushed_out.abort()
        self._stranger = self.loop.call_later(PATIENCE_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_known()
        if self._role is not None:
            self._visitors.leave(self._role)
            self._role = None
        self._request_came()
        super().connection_lost(exc)

    def prove(self, role: Role) -> bool:
        """Take the connection out of the strangers' share into that of a role, if that has room."""
        if self._role is not role:
            if not self._visitors.enter(role):
                return False
            if self._role is not None:
                self._visitors.leave(self._role)
            self._role = role
        self._is_known()
        return True

    def handle_events(self) -> None:
        super().handle_events()
        if not self._waits_for_request():
            self._request_came()
        elif self._request is None:
            self._request = self.loop.call_later(REQUEST_S, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._answer = self.loop.call_later(SLOW_S, self.transport.abort)

    def resume_writing(self) -> None:
        if self._answer is not None:
            self._answer.cancel()
        super().resume_writing()

    def _waits_for_request(self) -> bool:
        """Whether a part of a request has come, and the rest has not."""
        if self.transport.is_closing():
            return False
        state = self.conn.their_state
        return state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0]))

    def _request_came(self) -> None:
        if self._request is not None:
            self._request.cancel()
            self._request = None

    def _is_known(self) -> None:
        if self._stranger is not None:
            self._stranger.cancel()
        self._visitors.unknown.go(self.transport)


def prove(scope: Scope, role: Role) -> bool:
    """Whoever sent this request has proved a role. False: too many connections of that role."""
    visitor: Visitor = scope["state"][_VISITOR]
    return visitor.prove(role)
