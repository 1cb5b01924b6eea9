"""Exactly once, both ways, also over the death of a controller. Pure.

Nothing carries a number on its way: both ends count. Since it joined, the machine's agent counts
the numbered facts it says and the controller those it takes; the controller counts what `decide`
orders it and the agent what it hears. A link keeps the order, so both counts agree on it; and a
link that breaks while the controller lives is the loss of the machine. That leaves a controller
that dies.

Its successor finds the counts in the journal. An event says which of its machine's facts it was,
and committed rows are written before any later event, so the last one that was taken is known; the
agent, which keeps its facts until they are safe, says the rest again. Orders follow from events: a
replay gives the same ones in the same sequence, so the agent only has to say how many it has heard
to be given the others.
"""

from dataclasses import dataclass, field

from trainmover.controller.effects import Effect, Fence, Send
from trainmover.controller.events import EVENTS, AgentSaid, MachineJoined, MachineLost, WorkerSaid
from trainmover.ids import MachineId
from trainmover.protocol.messages import Order


@dataclass
class Account:
    """Of one machine, since it joined.

    facts    taken from it
    told     of these it knows to be safe
    orders   given to it
    pending  the newest of them, to be sent when it is back; None while it is there
    """

    incarnation: str
    facts: int = 0
    told: int = 0
    orders: int = 0
    pending: list[Order] | None = None

    @property
    def untold(self) -> bool:
        return self.facts > self.told

    def rest(self, heard: int) -> list[Order] | None:
        """Orders beyond the first `heard`; None if these are not the ones it has heard.

        >>> Account("i", orders=3, pending=["b", "c"]).rest(2)
        ['c']
        >>> Account("i", orders=3, pending=["b", "c"]).rest(4) is None
        True
        """
        pending = self.pending or []
        missing = self.orders - heard
        if not 0 <= missing <= len(pending):
            return None
        return pending[len(pending) - missing :]


@dataclass
class Accounts:
    """Of all machines of the job."""

    of: dict[MachineId, Account] = field(default_factory=dict)

    def journaled(self, event: EVENTS, *, away: bool) -> None:
        """Take in an event before its effects. away: the machines are not there to hear orders."""
        match event:
            case MachineJoined(machine=machine, incarnation=incarnation):
                self.of[machine] = Account(incarnation, pending=[] if away else None)
            case MachineLost(machine=machine):
                self.of.pop(machine, None)
            case WorkerSaid(machine=machine, number=number) if machine in self.of:
                self.of[machine].facts = max(self.of[machine].facts, number)
            case AgentSaid(machine=machine, number=number) if machine in self.of:
                self.of[machine].facts = max(self.of[machine].facts, number)
            case _:
                pass

    def ordered(self, effect: Effect) -> None:
        """Take in what has followed; what a machine cannot hear now is kept for it."""
        match effect:
            case Send(machine=machine, order=order) if machine in self.of:
                account = self.of[machine]
                account.orders += 1
                if account.pending is not None:
                    account.pending.append(order)
            case Fence(machine=machine):
                self.of.pop(machine, None)
            case _:
                pass

    @property
    def away(self) -> list[MachineId]:
        """Machines that have not come back yet."""
        return [machine for machine, account in self.of.items() if account.pending is not None]
