# SPDX-License-Identifier: Apache-2.0
"""Verdicts agree: one for each epoch, and none that undoes what a member has committed.

What one is made of was said for its epoch, and stays so: no vault that a rank may use keeps records
of older ones then.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.buddies import holding
from trainmover.controller.change.incidents import incident
from trainmover.controller.effects import Send
from trainmover.controller.state import Job
from trainmover.ids import Epoch, Step
from trainmover.protocol.messages import Switch, Verdict
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Verdicts:
    def __init__(self) -> None:
        self.given: dict[Epoch, Step] = {}

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        for effect in moment.effects:
            if isinstance(effect, Send) and isinstance(effect.order, Verdict | Switch):
                self._is_one(effect.order.epoch, effect.order.committed)
                if isinstance(effect.order, Switch) and not effect.order.back:
                    self._undoes_nothing(moment, effect.order)

                if isinstance(effect.order, Verdict):
                    self._stays_so(moment.after, effect.order.epoch)

    def _stays_so(self, job: Job, epoch: Epoch) -> None:
        assert job.change is not None
        for rank, said in incident(job, job.change.incident).positions.items():
            if said.epoch != epoch:
                raise Violation(f"the verdict of epoch {epoch} counts on {said} of rank {rank}")
        for box in map(self.world.boxes.__getitem__, holding(job) & job.machines.keys()):
            if box.alive and box.vault and box.fence < epoch:
                raise Violation(f"{box.name} may keep records after the verdict of epoch {epoch}")

    def _is_one(self, epoch: Epoch, committed: Step) -> None:
        before = self.given.setdefault(epoch, committed)
        if before != committed:
            raise Violation(
                f"for epoch {epoch} steps up to {before} are committed, and then up to {committed}"
            )

    def _undoes_nothing(self, moment: Decided, order: Switch) -> None:
        for worker in self.world.workers():
            stays = worker.live and worker.rank not in order.sources
            if stays and worker.box.name in moment.after.seats and worker.step > order.committed:
                raise Violation(f"{worker} has committed more than {order.committed} says")
