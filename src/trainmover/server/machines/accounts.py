# SPDX-License-Identifier: Apache-2.0
"""Exactly once, both ways, also over the death of a controller. Pure.

Nothing carries a number on its way: both ends count. Since it joined, the machine's agent counts
the numbered facts it says and the controller those it takes; the controller counts what `decide`
orders it and the agent what it hears. A link keeps the order, so both counts agree; who is back
after one has broken is told what was taken and says what was heard, and the rest is said again.

The successor of a controller that dies finds the counts in the journal. An event says which of its
machine's facts it was, and committed rows are written before any later event, so the last one that
was taken is known; the agent, which keeps its facts until they are safe, says the rest again.
Orders follow from events: a replay gives the same ones in the same sequence, so the agent only has
to say how many it has heard to be given the others. It says so with its heartbeats too: what it has
heard need not be kept.

Where a crash tears the journal's end, the replay gives fewer orders, and then others. So an agent
also says in whose term it heard the last one: of that controller's orders, those that follow from
what is left in the journal are all that it may have heard.

The host is given orders as well. Those that have left no result in the journal are carried out
again by its successor.
"""

from dataclasses import dataclass, field

from trainmover.controller.effects import (
    Effect,
    Fence,
    FindCheckpoint,
    GiveUpCheckpoint,
    HostOrder,
    Publish,
    Send,
)
from trainmover.controller.events import (
    EVENTS,
    AgentSaid,
    CheckpointFailed,
    CheckpointFound,
    CheckpointPublished,
    ControllerReturned,
    MachineJoined,
    MachinesLost,
    WorkerSaid,
    WorkersSaid,
)
from trainmover.ids import MachineId
from trainmover.protocol.messages import Order


@dataclass
class Account:
    """Of one machine, since it joined.

    facts    taken from it
    sure     of these, up to the newest that an event carries
    told     of these it knows to be safe
    orders   given to it
    pending  the newest of them: all that it may not have heard
    ends     term of each controller before this one -> orders given until its end
    """

    incarnation: str
    facts: int = 0
    sure: int = 0
    told: int = 0
    orders: int = 0
    pending: list[Order] = field(default_factory=list)
    away: bool = False
    ends: dict[int, int] = field(default_factory=dict)

    @property
    def untold(self) -> bool:
        return self.facts > self.told

    def rest(self, heard: int, term: int, *, now: int) -> list[Order] | None:
        """Orders beyond the first `heard`, the last of them in that term; None if these are not
        the ones it has heard. now: the term of this controller.

        >>> account = Account("i", orders=3, pending=["b", "c"], ends={0: 1, 7: 2})
        >>> account.rest(2, term=7, now=9)
        ['c']
        >>> account.rest(3, term=9, now=9)
        []
        >>> account.rest(2, term=0, now=9) is None
        True
        >>> account.rest(2, term=8, now=9) is None
        True
        """
        if heard > (self.orders if term == now else self.ends.get(term, 0)):
            return None
        return self._beyond(heard)

    def _beyond(self, heard: int) -> list[Order] | None:
        pending, missing = self.pending, self.orders - heard
        if not 0 <= missing <= len(pending):
            return None
        return pending[len(pending) - missing :]

    def heard(self, orders: int) -> None:
        """It has said that it has heard so many of this controller and those before.

        >>> account = Account("i", orders=3, pending=["b", "c"])
        >>> account.heard(2)
        >>> account.pending
        ['c']
        """
        rest = self._beyond(orders)
        if rest is not None:
            self.pending = rest

    def back(self, heard: int) -> None:
        """It is there again, and knows what was taken from it."""
        self.heard(heard)
        self.away, self.told = False, self.facts

    def _said(self, number: int) -> None:
        self.sure = max(self.sure, number)
        self.facts = max(self.facts, number)


@dataclass
class Accounts:
    """Of all machines of the job.

    undone  orders to the host of which it is not known that they were carried out
    term   of the newest controller: when it took over, by the host's clock, in microseconds, since
           job time is the same again where a journal was torn; the first has 0
    """

    of: dict[MachineId, Account] = field(default_factory=dict)
    undone: list[HostOrder] = field(default_factory=list)
    term: int = 0

    def journaled(self, event: EVENTS, *, away: bool) -> None:
        """Take in an event before its effects. away: the machines are not there to hear orders."""
        self._has_result(event)
        match event:
            case MachineJoined(machine=machine, incarnation=incarnation):
                self.of[machine] = Account(incarnation, away=away)
            case MachinesLost(lost=lost):
                for one in lost:
                    self.of.pop(one.machine, None)
            case WorkerSaid() | WorkersSaid() | AgentSaid() if event.machine in self.of:
                self.of[event.machine]._said(event.number)
            case ControllerReturned():
                self._begin_term(event.wall_us or event.at_us)
            case _:
                pass

    def _begin_term(self, term: int) -> None:
        for account in self.of.values():
            account.ends[self.term] = account.orders
        self.term = term

    def ordered(self, effect: Effect) -> None:
        """Take in what has followed; it is kept until it is known to have been heard, or done."""
        match effect:
            case Send(machine=machine, order=order) if machine in self.of:
                account = self.of[machine]
                account.orders += 1
                account.pending.append(order)
            case Fence(machine=machine):
                self.of.pop(machine, None)
            case Publish() | GiveUpCheckpoint() | FindCheckpoint():
                self.undone.append(effect)
            case _:
                pass

    def _has_result(self, event: EVENTS) -> None:
        """The host carries out one order after the other: those before this one are done too."""
        for index, order in enumerate(self.undone):
            if _is_result(event, order):
                del self.undone[: index + 1]
                return

    @property
    def away(self) -> list[MachineId]:
        """Machines that have not come back yet."""
        return [machine for machine, account in self.of.items() if account.away]


def _is_result(event: EVENTS, order: HostOrder) -> bool:
    match event, order:
        case CheckpointPublished(), Publish():
            return event.checkpoint == order.checkpoint
        case CheckpointFailed(), Publish():
            place = order.checkpoint.step, order.checkpoint.epoch
            return (event.step, event.epoch) == place
        case CheckpointFound(), FindCheckpoint():
            return event.epoch == order.epoch
        case _:
            return False
