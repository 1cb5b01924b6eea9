# SPDX-License-Identifier: Apache-2.0
"""What is said is known from then on: a fact that counts is in what the job knows, as it was said.

Of the change under way: who said what. Of processes: where they are, which stand still, which are
stopped. Of ranks: what they recorded, and which are through. It is compared after each decision on
such a fact, unless that led to another change or to the job's end.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.events import AgentSaid, WorkerSaid, WorkersSaid
from trainmover.controller.state import Change, Job, Machine, Phase
from trainmover.ids import MachineId, Slot
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

OF_A_CHANGE = m.Prepared | m.Position | m.AtBoundary | m.Switched | m.Loaded


class HeardOf:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        event, before, after = moment.event, moment.before, moment.after
        running = before.phase is after.phase is Phase.RUNNING
        if not running or not isinstance(event, WorkerSaid | WorkersSaid | AgentSaid):
            return
        here = after.machines.get(event.machine)
        if here is None or event.machine not in before.machines:
            return  # It was given up for it.
        if isinstance(event, AgentSaid):
            if not _of_agent(before, after, here, event.fact):
                raise Violation(f"{here.id} says {event.fact}, and the job does not know it")
            return
        local = event.local_rank if isinstance(event, WorkerSaid) else None
        for fact in event.facts if isinstance(event, WorkersSaid) else [event.fact]:
            at = fact.rank % after.spec.nproc if local is None else local  # type: ignore[union-attr]
            if at in here.workers and not _of_worker(before, after, here, at, fact):
                raise Violation(f"{here.id} says {fact}, and the job does not know it")


def _of_agent(before: Job, after: Job, here: Machine, fact: object) -> bool:
    change = after.change
    match fact:
        case m.VaultHeld(epoch=epoch, records=records) if _is_same(before, change, epoch):
            assert change is not None
            return change.vaults.get(here.id) == records
        case m.WorkerState(local_rank=local, pid=pid, state=state):
            known = after.hanging.disturbed.get((here.id, local))
            if pid in here.gone or here.pids.get(local, pid) != pid:
                return known is None or known.pid != pid
            return (known.state if known is not None else "") == state
        case m.Examined(number=number):
            one = after.health.of.get(here.id)
            return one is None or one.number != number or one.told is not None
    return True


def _of_worker(before: Job, after: Job, here: Machine, local: int, fact: object) -> bool:
    mine = isinstance(rank := getattr(fact, "rank", None), int) and rank == after.rank_of(
        here.id, local
    )
    match fact:
        case m.WorkerUp():
            # A machine that is up with other versions may be told to start anew.
            return (here.workers[local], here.pids[local]) == (fact.address, fact.pid)
        case m.Attached():
            return rank in after.attached
        case m.Recorded() if mine:
            return after.recorded.get(fact.rank) == fact
        case m.StepsChanged() if mine:
            return (fact.trace, fact.compiled) in after.changed
        case m.Finished() if mine and not fact.code and before.change is after.change is None:
            return after.finished.get(fact.rank) == (fact.step, fact.digest)
        case m.BetweenSteps() if mine:
            return bool(after.between)
        case m.Stands() if mine and fact.epoch == after.epoch:
            known = after.hanging.stands.get(fact.rank)
            return known is not None and known.fact == fact
        case m.Moves() if mine:
            return fact.rank not in after.hanging.stands
        case m.Prepared() | m.Position() | m.AtBoundary() | m.Switched() | m.Loaded():
            change = after.change
            if _is_same(before, change, fact.epoch) and _counts(after, change, here.id, fact):
                assert change is not None
                return _is_in(change, fact)
    return True


def _is_same(before: Job, change: Change | None, epoch: int) -> bool:
    """Whether it is of the change under way, and was before."""
    known = before.change
    return known is not None and change is not None and known.epoch == epoch == change.epoch


def _counts(job: Job, change: Change | None, machine: MachineId, fact: OF_A_CHANGE) -> bool:
    """Who has the rank says where it stands; of what follows whoever is to have it."""
    assert change is not None
    slot = fact.rank // job.spec.nproc
    if isinstance(fact, m.Position | m.AtBoundary):
        return job.seats[slot] == machine
    return change.joiners.get(Slot(slot), job.seats[slot]) == machine


def _is_in(change: Change, fact: OF_A_CHANGE) -> bool:
    match fact:
        case m.Prepared():
            return fact.rank in change.prepared
        case m.Position():
            return change.positions.get(fact.rank) == fact
        case m.AtBoundary():
            misled = fact.rank in change.misled or not fact.misled
            return change.at_boundary.get(fact.rank) == fact.committed and misled
        case m.Switched():
            return fact.rank in change.switched
        case m.Loaded():
            return fact.rank in change.loaded
