# SPDX-License-Identifier: Apache-2.0
"""What an incident says it has cost is what ranks have measured, and it names what was done for it.

downtime     of the stayer that stood longest, by what each has said with its first commit
stacks       of ranks whose process was ended for standing still, and of no others
positions    of ranks that stayed, each of this epoch
why_rung     for whatever was more than to run a step again
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Send
from trainmover.controller.events import WorkerSaid, WorkersSaid
from trainmover.controller.state import Incident, Job, Kind, Outcome
from trainmover.ids import Epoch, MachineId, Rank
from trainmover.protocol.messages import Committed, EndWorker
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Figures:
    """lost_ms: of an epoch, what ranks say that its change has cost them. ended: who was to end.
    torn: up to this epoch not all of that may be known."""

    def __init__(self) -> None:
        self.lost_ms: dict[Epoch, list[float]] = defaultdict(list)
        self.ended: set[MachineId] = set()
        self.torn = Epoch(0)

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided, Replayed: self.replayed}

    def replayed(self, moment: Replayed) -> None:
        if moment.torn:
            self.torn = moment.job.epoch_last

    def decided(self, moment: Decided) -> None:
        for fact in _first_commits(moment):
            if fact.gap_us is not None:
                lost_ms = (fact.gap_us - (fact.median_us or 0)) / 1000.0
                self.lost_ms[fact.epoch].append(max(lost_ms, 0.0))
        for effect in moment.effects:
            if isinstance(effect, Send) and isinstance(effect.order, EndWorker):
                self.ended.add(effect.machine)
        before, after = moment.before.incidents, moment.after.incidents
        if after is before:
            return
        known = {one.number: one for one in before}
        for one in after:
            old = known.get(one.number)
            if one is not old:
                self._is_named(moment.after, one)
                closed = old is not None and old.outcome is Outcome.OPEN
                if closed and one.outcome is Outcome.DONE:
                    self._is_counted(one)

    def _is_named(self, job: Job, one: Incident) -> None:
        if one.rung > 1 and not one.why_rung:
            raise Violation(f"incident {one.number} is on rung {one.rung}, and does not say why")
        if one.kind is Kind.MOVE and one.rung:
            raise Violation(f"the move {one.number} is on rung {one.rung}")
        if one.stacks and not self.ended:
            raise Violation(f"incident {one.number} has stacks of ranks that nobody has ended")
        if one.lost and one.machine not in one.lost and one.machine not in job.machines:
            raise Violation(
                f"incident {one.number}: {one.machine} is gone, and lost are {one.lost}"
            )
        if one.epoch > job.epoch_last + (2 if one.rung == 3 else 0):  # All are to begin with it.
            raise Violation(f"incident {one.number} is of epoch {one.epoch}, which never was")

    def _is_counted(self, one: Incident) -> None:
        said = self.lost_ms.get(one.epoch, [])
        worst = max(said, default=None)
        if one.epoch > self.torn and one.downtime_ms != worst:
            raise Violation(f"incident {one.number} took {one.downtime_ms} ms; ranks say {worst}")


def _first_commits(moment: Decided) -> Iterable[Committed]:
    """Of ranks of the job, that are heard."""
    event, job = moment.event, moment.before
    if not isinstance(event, WorkerSaid | WorkersSaid) or event.machine not in job.machines:
        return ()
    facts = event.facts if isinstance(event, WorkersSaid) else [event.fact]
    return (
        fact for fact in facts if isinstance(fact, Committed) and _is_its(job, event, fact.rank)
    )


def _is_its(job: Job, event: WorkerSaid | WorkersSaid, rank: Rank) -> bool:
    return job.rank_of(event.machine, rank % job.spec.nproc) == rank
