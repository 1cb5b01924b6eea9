# SPDX-License-Identifier: Apache-2.0
"""All ranks go back only where staying was impossible.

Who stays may stay if nothing that it holds is made of what a collective has left, and if for each
lost rank somebody else holds the same state, and a machine of the job the record of its next step.
That is looked for in what machines really hold. Where bits have flipped, or the journal was torn,
the job may rightly believe less.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.incidents import incident
from trainmover.controller.state import Change, Job
from trainmover.ids import Rank, Slot
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.ranks.workers import Worker
    from trainmover.simulator.world import World


class Staying:
    def __init__(self) -> None:
        self.torn = False

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided, Replayed: self.replayed}

    def replayed(self, moment: Replayed) -> None:
        self.torn |= bool(moment.torn)

    def decided(self, moment: Decided) -> None:
        before, after = moment.before.change, moment.after.change
        if before is None or after is None or before.back or not after.back:
            return
        knobs = self.world.knobs
        if self.torn or self.world.flips or moment.before.exited or knobs.corrupts or knobs.lacks:
            return
        stay = self._stay(moment.before, before)
        if stay and self._could_stay(moment.before, before, stay):
            why = incident(moment.after, after.incident).why_rung
            raise Violation(f"all go back, and {len(stay)} ranks could have stayed: {why}")

    def _stay(self, job: Job, change: Change) -> "list[Worker]":
        """Processes whose rank nobody is to take, if all of them live."""
        ranks = {
            rank
            for slot in map(Slot, range(len(job.seats)))
            if slot not in change.joiners and slot not in change.missing
            for rank in job.spec.ranks(slot)
        }
        live = [w for w in self.world.workers() if w.live and w.rank in ranks]
        return live if {worker.rank for worker in live} == ranks else []

    def _could_stay(self, job: Job, change: Change, stay: "list[Worker]") -> bool:
        slots = {*change.joiners, *change.missing}
        lost = [rank for slot in slots for rank in job.spec.ranks(slot)]
        if any(worker.misled for worker in stay) or (self.world.knobs.alone and lost):
            return False
        past = max(job.committed, *(worker.step for worker in stay))
        if any(past not in (worker.step, worker.gate) for worker in stay):
            return False
        return all(self._has_record(job, rank, past + 1) for rank in lost)

    def _has_record(self, job: Job, rank: Rank, step: int) -> bool:
        boxes = [self.world.boxes[name] for name in job.machines]
        return any(box.alive and step in box.vault.get(rank, {}) for box in boxes)
