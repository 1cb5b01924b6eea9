# SPDX-License-Identifier: Apache-2.0
"""The controller's end of trunks, and of the lanes in them: each is a link like any other. Pure.

A lane is let in as the machine that was sent to that relay with a ticket, and as nobody else. What
is sent over lanes in one turn of the loop leaves in one frame.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from trainmover.errors import ProtocolError
from trainmover.ids import MachineId
from trainmover.protocol.lanes import LaneSession
from trainmover.protocol.messages import (
    AgentFact,
    Hello,
    Order,
    Return,
    decode_agent_fact,
    encode,
)
from trainmover.protocol.messages.trunk import (
    Beat,
    Came,
    Carried,
    Carry,
    CloseLane,
    Gone,
    decode_trunk_fact,
)
from trainmover.server.machines.absence import LINK_ENDED

if TYPE_CHECKING:
    from trainmover.server.surroundings import Link

RELAY_ENDED = "its relay has gone"
_BEAT = encode(Beat())
SAID_BYTES_MAX = 4 * 1024 * 1024
"""Of orders in one frame, but for a single one."""


class LaneOwner(Protocol):
    """Who is told what happens on lanes; the server, or the simulated host."""

    def now(self) -> int: ...
    def soon(self, act: Callable[[], None]) -> None:
        """Do it when what is being done is done."""

    def session_for(self, machine: MachineId, relay: MachineId) -> LaneSession | None:
        """Of a lane, by the ticket with which that machine was sent to that relay: once."""

    def lane_opened(self, lane: "Lane") -> None: ...
    def lane_beat(self, lane: "Lane") -> None: ...
    def said_return(self, link: "Link", back: Return) -> None: ...
    def said(self, link: "Link", fact: AgentFact) -> None: ...
    def lane_ended(self, lane: "Lane", why: str) -> None: ...


class Lane:
    """To one machine behind a relay; `surroundings.Link`."""

    trunk = None

    def __init__(self, trunk: "Trunk", number: int, meant: MachineId, session: LaneSession) -> None:
        self.machine: MachineId | None = None
        self.quiet_ticks = 0
        self.heard_us = trunk.owner.now()
        self.relay: MachineId | None = trunk.relay
        self.number = number
        self._trunk, self._meant, self._session = trunk, meant, session
        self._returned = False

    @property
    def _is_open(self) -> bool:
        return self._trunk.lanes.get(self.number) is self

    def send(self, order: Order) -> None:
        if self._is_open:
            payload = encode(order)
            self._trunk.send(payload, self.number, self._session.mark(payload))

    def close(self) -> None:
        """Behind what was sent."""
        self._trunk.end(self, LINK_ENDED, tell_relay=True)

    abort = close

    def beat(self) -> None:
        """The machine has answered a beat."""
        self.quiet_ticks, self.heard_us = 0, self._trunk.owner.now()
        if self._returned:
            self._trunk.owner.lane_beat(self)

    def hear(self, frame: bytes) -> None:
        """Something of it has come."""
        self.quiet_ticks, self.heard_us = 0, self._trunk.owner.now()
        try:
            self._take(decode_agent_fact(self._session.opened(frame)))
        except ProtocolError as error:  # It may be the relay's fault: the machine comes by itself.
            self._trunk.end(self, f"{LINK_ENDED}: {error.happened}", tell_relay=True)

    def _take(self, fact: AgentFact) -> None:
        if isinstance(fact, Hello) or isinstance(fact, Return) == self._returned:
            raise ProtocolError("A machine must say once, and first, that it returns.")
        if not isinstance(fact, Return):
            self._trunk.owner.said(self, fact)
            return
        if fact.machine != self._meant:
            raise ProtocolError(f"{self._meant} has returned as {fact.machine}.")
        self._returned = True
        self._trunk.owner.said_return(self, fact)


class Trunk:
    """Of one relay. write: a frame's payload, to it; abort: the connection. lanes: that are open;
    quiet_beats: for which nothing was heard."""

    def __init__(
        self,
        relay: MachineId,
        owner: LaneOwner,
        write: Callable[[bytes], None],
        abort: Callable[[], None],
    ) -> None:
        self.relay, self.owner = relay, owner
        self.lanes: dict[int, Lane] = {}
        self.over = False
        self.quiet_beats = 0
        self._abort = abort
        self._newest = 0
        self._write = write
        self._waiting: list[tuple[bytes, list[tuple[int, bytes]]]] = []
        self._at: dict[bytes, int] = {}  # Payload -> its place there.
        self._newest_of: dict[int, int] = {}  # Lane -> place of the newest that it gets.
        self._bytes = 0

    def hear(self, payload: bytes) -> None:
        """A frame of the relay. Raises ProtocolError for what no relay says."""
        self.quiet_beats = 0
        fact = decode_trunk_fact(payload)
        match fact:
            case Carried():
                self._carried(fact)
            case Came(lane=number, machine=machine):
                self._came(number, machine)
            case Gone(lane=number) if number in self.lanes:
                self.end(self.lanes[number], LINK_ENDED, tell_relay=False)
            case _:
                pass

    def _carried(self, fact: Carried) -> None:
        lanes = self.lanes
        for number, frame in fact.said:
            if number in lanes:
                lanes[number].hear(frame)
        for number in fact.beats:
            if number in lanes:
                lanes[number].beat()

    def _came(self, number: int, machine: MachineId) -> None:
        if number <= self._newest:
            raise ProtocolError(f"{self.relay} has given lane {number} again.")
        self._newest = number
        session = self.owner.session_for(machine, self.relay)
        if session is None:
            self._write(encode(CloseLane(lane=number)))
            return
        lane = self.lanes[number] = Lane(self, number, machine, session)
        self.owner.lane_opened(lane)

    def beat(self) -> None:
        """Of the controller: passed on to all lanes."""
        self.quiet_beats += 1
        self.flush()
        self._write(_BEAT)

    def send(self, payload: bytes, lane: int, mark: bytes) -> None:
        """In the next frame: there once for all lanes, as far as none of them hears it out of its
        turn."""
        if not self._waiting:
            self.owner.soon(self.flush)
        at = self._at.get(payload, -1)
        if at < self._newest_of.get(lane, 0):
            at = self._at[payload] = len(self._waiting)
            self._waiting.append((payload, []))
            self._bytes += len(payload)
        self._waiting[at][1].append((lane, mark))
        self._newest_of[lane] = at
        if self._bytes > SAID_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        waiting, self._waiting = self._waiting, []
        self._at, self._newest_of, self._bytes = {}, {}, 0
        if waiting and not self.over:
            self._write(encode(Carry(said=waiting)))

    def end(self, lane: Lane, why: str, *, tell_relay: bool) -> None:
        """It is no link any more; its owner is told soon, as of a connection."""
        if self.lanes.get(lane.number) is not lane:
            return
        self.flush()
        del self.lanes[lane.number]
        if tell_relay and not self.over:
            self._write(encode(CloseLane(lane=lane.number)))
        self.owner.soon(partial(self.owner.lane_ended, lane, why))

    def ended(self) -> None:
        """The connection is gone, or is to go."""
        if not self.over:
            self.over = True
            self._abort()
        for lane in list(self.lanes.values()):
            self.end(lane, RELAY_ENDED, tell_relay=False)
