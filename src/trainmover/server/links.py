"""Inbound control links: one per agent.

Until the peer has proved the token nothing it sends is parsed; until it has said hello nothing it
sends counts. Silence is counted in ticks of the server's own loop, so a server that was itself
stopped for a while does not condemn anybody.
"""

import asyncio
import os
import time
from typing import Protocol

from trainmover.errors import ProtocolError
from trainmover.ids import MachineId
from trainmover.protocol.crowd import Crowd
from trainmover.protocol.framing import FrameReader, frame
from trainmover.protocol.hello import CHALLENGE_BYTES, REFUSAL, Greeting, refused
from trainmover.protocol.messages import AgentFact, Hello, Order, Return, decode_agent_fact, encode

PURPOSE = "controller"
HELLO_TICKS_MAX = 25
"""Who has proved the token and says no hello for 5 s is closed."""


class LinkOwner(Protocol):
    """Who is told what happens on links; the server."""

    links: "set[MachineLink]"
    crowd: Crowd[asyncio.Transport]

    def said_hello(self, link: "MachineLink", hello: Hello) -> None: ...
    def said_return(self, link: "MachineLink", back: Return) -> None: ...
    def said(self, link: "MachineLink", fact: AgentFact) -> None: ...
    def link_lost(self, link: "MachineLink", why: str) -> None: ...
    def turned_away(self, why: str) -> None: ...


def now_us() -> int:
    """The host's clock, microseconds."""
    return time.time_ns() // 1000


class MachineLink(asyncio.Protocol):
    """One connection, from its first byte. `machine` is None until its hello was accepted.

    quiet_ticks  ticks since the last byte came; counted up by the owner
    heard_us     when the last byte came
    """

    def __init__(self, token: bytes, owner: LinkOwner) -> None:
        self.machine: MachineId | None = None
        self.quiet_ticks = 0
        self.heard_us = 0
        self._owner = owner
        self._challenge = os.urandom(CHALLENGE_BYTES)
        self._greeting: Greeting | None = Greeting(token, PURPOSE, self._challenge)
        self._hello_said = False
        self._reader = FrameReader()
        self._why = "connection closed"
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._owner.links.add(self)
        crowded_out = self._owner.crowd.come(transport, asyncio.get_running_loop().time())
        if crowded_out is not None:
            crowded_out.abort()
        transport.write(self._challenge)

    def data_received(self, data: bytes) -> None:
        self.quiet_ticks = 0
        self.heard_us = now_us()
        try:
            if self._greeting is not None:
                data = self._greet(self._greeting, data)
            for payload in self._reader.feed(data):
                self._take(decode_agent_fact(payload))
        except ProtocolError as error:
            self._why = f"it broke the rules of the wire ({error.happened})"
            if not self._hello_said:
                self._owner.turned_away(error.happened)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_crowd()
        self._transport = None
        self._owner.links.discard(self)
        self._owner.link_lost(self, self._why)

    def send(self, order: Order) -> None:
        if self._transport is not None:
            self._transport.write(frame(encode(order)))

    def close(self) -> None:
        """Send what is queued, then close; what still comes in is not heard."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _greet(self, greeting: Greeting, data: bytes) -> bytes:
        """The bytes that follow the peer's proof. Raises ProtocolError for a wrong one."""
        reply = greeting.hear(data)
        if reply and self._transport is not None:
            self._transport.write(reply)
        if reply == REFUSAL:
            raise refused(PURPOSE)
        if greeting.proved:
            self._greeting = None
            self._leave_crowd()
        return greeting.rest

    def _leave_crowd(self) -> None:
        if self._transport is not None:
            self._owner.crowd.go(self._transport)

    def _take(self, fact: AgentFact) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if isinstance(fact, Hello | Return) == self._hello_said:
            raise ProtocolError("A machine must say hello once, and first.")
        self._hello_said = True
        match fact:
            case Hello():
                self._owner.said_hello(self, fact)
            case Return():
                self._owner.said_return(self, fact)
            case _:
                self._owner.said(self, fact)
