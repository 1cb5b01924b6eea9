# SPDX-License-Identifier: Apache-2.0
"""Inbound control links: one per agent, which has proved the token at the listener.

Until it has said hello nothing it sends counts. Silence is counted in ticks of the server's own
loop, so a server that was itself stopped for a while does not condemn anybody.
"""

import asyncio
from typing import Protocol

from trainmover.errors import ProtocolError
from trainmover.ids import MachineId
from trainmover.protocol import messages as m
from trainmover.protocol.hello import hashed
from trainmover.protocol.lanes import CARRIED_BYTES_MAX
from trainmover.protocol.messages import AgentFact, Hello, Order, Return, decode_agent_fact, encode
from trainmover.protocol.sealed import SealedReader, Session
from trainmover.server.machines.absence import LINK_ENDED
from trainmover.server.machines.lanes import Lane, Trunk

PURPOSE = "controller"
HELLO_TICKS_MAX = 25
"""Who has proved the token and says no hello for 5 s is closed."""


class LinkOwner(Protocol):
    """Who is told what happens on links; the server."""

    links: "set[MachineLink | Lane]"

    def now(self) -> int: ...
    def said_hello(self, link: "MachineLink", hello: Hello) -> None: ...
    def said_return(self, link: "MachineLink", back: Return) -> None: ...
    def said_trunk(self, link: "MachineLink", fact: m.Trunk) -> None: ...
    def said(self, link: "MachineLink", fact: AgentFact) -> None: ...
    def link_lost(self, link: "MachineLink", why: str, *, nonsense: bool) -> None: ...
    def turned_away(self, why: str) -> None: ...


class MachineLink(asyncio.Protocol):
    """One connection, from its proof on. `machine` is None until its hello was accepted.

    quiet_ticks  ticks since the last byte came; counted up by the owner
    heard_us     when the last byte came
    trunk        that it is, if a relay has dialled
    """

    def __init__(self, owner: LinkOwner, session: Session) -> None:
        self.machine: MachineId | None = None
        self.relay: MachineId | None = None
        self.trunk: Trunk | None = None
        self.quiet_ticks = 0
        self.heard_us = 0
        self._owner = owner
        self._session = session
        self._hello_said = False
        self._reader = SealedReader(session)
        self._why = LINK_ENDED
        self._nonsense = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._owner.links.add(self)

    def data_received(self, data: bytes) -> None:
        self.quiet_ticks = 0
        self.heard_us = self._owner.now()
        try:
            payloads = self._reader.feed(data)
        except ProtocolError as error:  # Changed on its way: not the agent's fault.
            self._end(f"what came was changed on its way ({error.happened})", error)
            return
        try:
            for payload in payloads:
                if self.trunk is not None:
                    self.trunk.hear(payload)
                else:
                    self._take(decode_agent_fact(payload))
        except ProtocolError as error:
            self._nonsense = True
            self._end(f"it broke the rules of the wire ({error.happened})", error)
        except OSError as error:  # Ours: asyncio would take it for one of the connection's.
            raise RuntimeError(f"what {self.machine} has said could not be taken in") from error

    def _end(self, why: str, error: ProtocolError) -> None:
        self._why = why
        if not self._hello_said:
            self._owner.turned_away(error.happened)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.links.discard(self)
        self._owner.link_lost(self, self._why, nonsense=self._nonsense)

    def send(self, order: Order) -> None:
        if self._transport is not None:
            self._transport.write(self._session.seal(encode(order)))

    def become_trunk(self, trunk: Trunk) -> None:
        """What comes from now on, it hears."""
        self.trunk = trunk
        self._reader.bytes_max = CARRIED_BYTES_MAX

    def write(self, payload: bytes) -> None:
        """A frame, as it is, of a trunk."""
        if self._transport is not None:
            sealed = self._session.seal(payload, bytes_max=CARRIED_BYTES_MAX)
            self._transport.write(sealed)

    def close(self) -> None:
        """Send what is queued, then close; what still comes in is not heard."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _take(self, fact: AgentFact) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if isinstance(fact, Hello | Return | m.Trunk) == self._hello_said:
            raise ProtocolError("A machine must say hello once, and first.")
        if isinstance(fact, Hello | Return | m.Trunk) and not self._is_peer(fact.machine):
            raise ProtocolError(
                f"Who has proved to be another machine said hello as {fact.machine}."
            )
        self._hello_said = True
        match fact:
            case Hello():
                self._owner.said_hello(self, fact)
            case Return():
                self._owner.said_return(self, fact)
            case m.Trunk():
                self._owner.said_trunk(self, fact)
            case _:
                self._owner.said(self, fact)

    def _is_peer(self, machine: MachineId) -> bool:
        """Whether the dialler has proved that it is this one."""
        return self._session.peer == hashed(machine.encode())
