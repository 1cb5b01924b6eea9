# SPDX-License-Identifier: Apache-2.0
"""Every wait ends: no rank stands between two steps while nobody is about to tell it anything.

Such a job would heal itself, for whoever stands still is given up in the end; so it is looked for.
The job waits for a machine as long as it was told to; no longer, nor less when a clock is set.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Send
from trainmover.protocol.messages import EndWorker, Stands
from trainmover.simulator.happenings import Decided, Ended, Replayed, Said, Violation

if TYPE_CHECKING:
    from trainmover.simulator.ranks.workers import Worker
    from trainmover.simulator.world import World

BEAT_US = 1_000_000
"""Of the controller's clock, and then some."""


class Waits:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        self.back_us = -BEAT_US
        self.waits_us: int | None = None
        return {
            Said: self.said,
            Decided: self.decided,
            Replayed: self.replayed,
            Ended: self.ended,
        }

    def replayed(self, _: Replayed) -> None:
        """While there is no controller nobody can say that a wait is over."""
        self.back_us = self.world.now

    def said(self, moment: Said) -> None:
        """Its watch sees it stand still, and members do not change."""
        fact = moment.fact
        if isinstance(fact, Stands) and fact.where == "runtime":
            for worker in self.world.boxes[moment.machine].workers:
                if worker.rank == fact.rank and worker.waits is not None:
                    raise Violation(f"{worker} waits for what nobody is about to say")

    def decided(self, moment: Decided) -> None:
        """The controller gives up who waits for its word, and was not seen to stand stopped."""
        change = moment.before.change
        waited = change is not None and bool(change.missing) and moment.after.change is change
        waited &= self.world.now - self.back_us > BEAT_US
        if change is not None and waited and moment.event.at_us > change.until_us + BEAT_US:
            raise Violation(f"slots {sorted(change.missing)} are waited for longer than was said")
        missing = moment.after.change is not None and bool(moment.after.change.missing)
        if missing and self.waits_us is None:
            self.waits_us = self.world.now
        elif not missing and moment.after.code is None:
            self.waits_us = None
        stopped = moment.before.hanging.disturbed
        for effect in moment.effects:
            if isinstance(effect, Send) and isinstance(effect.order, EndWorker):
                if (effect.machine, effect.order.local_rank) in stopped:
                    continue
                worker = self.world.process_at(f"{effect.machine}/{effect.order.pid}")
                if worker is not None and self._waits(worker):
                    raise Violation(f"{worker} is ended, and waits: {effect.order.why}")

    def ended(self, ended: Ended) -> None:
        """For want of a machine: by the world's own time it has waited."""
        if self.waits_us is None or "and none has come in" not in ended.end.text:
            return
        waited_s = (self.world.now - self.waits_us) / 1e6
        if waited_s < self.world.spec.wait_s - BEAT_US / 1e6:
            raise Violation(f"the job has waited {waited_s:.1f} s for a machine: {ended.end.text}")

    def _waits(self, worker: "Worker") -> bool:
        """It has said all that it has to say, and that has arrived."""
        box, network = worker.box, self.world.network
        held = worker.stopped or worker.stuck or worker.spins or box.frozen
        heard = box.is_in and not network.cuts and box.name not in network.slow
        return worker.waits is not None and worker.live and heard and not held
