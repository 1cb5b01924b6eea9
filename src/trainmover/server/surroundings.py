# SPDX-License-Identifier: Apache-2.0
"""What a controller is given: links, a journal, and who does what is for no machine. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainmover.controller.effects import Answer, Effect, End, HostOrder
from trainmover.controller.events import EVENTS
from trainmover.controller.state import Job
from trainmover.ids import MachineId
from trainmover.journal.rows import Unequal
from trainmover.protocol.messages import (
    Columns,
    Heartbeat,
    Order,
    Output,
    Taking,
    Unwritten,
    Watched,
    Weighed,
)

ByTheWay = Columns | Heartbeat | Output | Taking | Unwritten | Watched | Weighed
"""Facts that lead to no decision, or not by themselves."""


@dataclass(slots=True)
class Decided:
    """The controller has taken an event, the journal's `seq`; the effects are on their way."""

    seq: int
    event: EVENTS
    before: Job
    after: Job
    effects: tuple[Effect, ...]


class Link(Protocol):
    """To an agent. What is sent arrives in order, or the link ends.

    machine      at the other end; None until the controller has taken it in
    quiet_ticks  beats since something was last heard, counted by whoever owns the link
    heard_us     when that was
    relay        that carries it; None: it goes straight there
    """

    machine: MachineId | None
    quiet_ticks: int
    heard_us: int
    relay: MachineId | None

    def send(self, order: Order) -> None: ...

    def close(self) -> None:
        """After what was sent; what still comes in is not heard."""

    def abort(self) -> None:
        """At once."""


class Book(Protocol):
    """The journal, as far as it is written here. What returns is written."""

    def append(self, event: EVENTS) -> int: ...

    def append_batches(
        self, batches: Sequence[Columns], safe: Mapping[str, int] | None = None
    ) -> list[Unequal]: ...


class Surroundings(Protocol):
    """The server, or the simulated world."""

    def happened(self, moment: Decided) -> None:
        """For people: all that follows from it was begun before."""

    def told(self, machine: MachineId, fact: ByTheWay) -> None:
        """Said by a machine of the job, or one of its workers."""

    def note(self, text: str, *, loud: bool = False) -> None:
        """A line for people."""

    def turned_away(self, why: str) -> None:
        """Somebody was not let in. As often as he likes to try."""

    def answer(self, answer: Answer) -> None: ...

    def save(self, order: HostOrder) -> None:
        """Begin; what comes of it is an event. One after the other, in this order."""

    def dial(self, machine: MachineId, vault: str) -> None:
        """Look whether anybody answers there; what comes of it is told to `Control.dialled`."""

    def ticket(self) -> str:
        """A fresh one that nobody can guess."""

    def end(self, end: End) -> None:
        """The job is over, and the machines are told to leave."""
