# SPDX-License-Identifier: Apache-2.0
"""Nobody who is well is ended: no process that executes, no machine that its neighbours reach.

The truth of the world counts, and not what the controller has heard: however long it was away, and
whatever was cut between it and them. A machine may go in spite of that if somebody asked for a
drill, if its ranks stood still a second time in short, if it is to join and another can take its
place, or if a torn journal no longer knows it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Send
from trainmover.controller.events import AgentSaid, MachinesLost
from trainmover.controller.standstill.hanging import AGAIN_US
from trainmover.controller.state import Job
from trainmover.ids import MachineId
from trainmover.protocol.messages import EndWorker, WorkerExited
from trainmover.simulator import deadlines
from trainmover.simulator.checkers.losses.capacity import able
from trainmover.simulator.happenings import Decided, Fenced, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.places.machines import Box
    from trainmover.simulator.world import World

NEWS_S = 1.0
"""For so long the controller may not know yet that somebody is well again."""


class NobodyHealthyIsEnded:
    """stood_us: machine -> when a rank there was ended that stood still indeed."""

    def __init__(self) -> None:
        self.stood_us: dict[MachineId, list[int]] = {}
        self.torn = False

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        self.news_us = int((NEWS_S + deadlines.seconds(world.spec, "answer_s")) * 1e6)
        return {Decided: self.decided, Fenced: self.fenced, Replayed: self.replayed}

    def replayed(self, moment: Replayed) -> None:
        self.torn |= bool(moment.torn)

    def decided(self, moment: Decided) -> None:
        self.moment = moment
        for effect in moment.effects:
            if isinstance(effect, Send) and isinstance(effect.order, EndWorker):
                self._is_ended(effect.machine, effect.order)

    def _is_ended(self, machine: MachineId, order: EndWorker) -> None:
        worker = self.world.process_at(f"{machine}/{order.pid}")
        # A process that has ended already may have stood still before.
        well_us = 0 if worker is None else self.world.truth.executes_for_us(worker)
        if well_us > self.news_us:
            raise Violation(
                f"{worker} has executed for {_since(well_us)} and is ended: {order.why}"
            )
        self.stood_us.setdefault(machine, []).append(self.world.now)

    def fenced(self, fenced: Fenced) -> None:
        box = self.world.boxes[fenced.machine]
        if self.torn or box.incarnation != fenced.incarnation or self._may_go(fenced.machine):
            return
        well_us = self.world.truth.well_for_us(box)
        if well_us > self.news_us and (self._all_execute(box) or self._all_can_be_ended(box)):
            why = type(self.moment.event).__name__
            raise Violation(f"{box.name} has been well for {_since(well_us)} and is fenced ({why})")

    def _all_execute(self, box: "Box") -> bool:
        truth = self.world.truth
        return all(truth.executes_for_us(worker) > self.news_us for worker in box.workers)

    def _all_can_be_ended(self, box: "Box") -> bool:
        """Whether the process that it goes for would have ended, had the order come to it."""
        told_us = self.world.truth.can_be_told_for_us(box)
        goes_for_it = box.name in self.moment.before.hanging.condemned
        can = not any(worker.blocked for worker in box.workers)
        return goes_for_it and can and told_us > self.news_us

    def _may_go(self, machine: MachineId) -> bool:
        job, event = self.moment.before, self.moment.event
        if machine in job.machines and job.machines[machine].killed_us is not None:
            return True
        joiners = job.change.joiners.values() if job.change is not None else ()
        if (
            isinstance(event, MachinesLost)
            and machine in joiners
            and self._another_can(job, machine)
        ):
            return True
        again = isinstance(event, AgentSaid) and isinstance(event.fact, WorkerExited)
        lately = [us for us in self.stood_us.get(machine, ()) if self.world.now - us < AGAIN_US]
        return again and len(lately) > 1

    @staticmethod
    def _another_can(job: Job, machine: MachineId) -> bool:
        return any(name != machine for name in able(job))


def _since(us: int) -> str:
    return f"{us / 1e6:.1f} s" if us < 10**9 else "ever"
