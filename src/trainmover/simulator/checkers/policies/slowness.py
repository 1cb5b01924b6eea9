# SPDX-License-Identifier: Apache-2.0
"""A machine that is slow by itself is found, and what a move has come to is measured.

As the controller has heard it: steps that all ranks have told in one epoch, of which one machine's
take longer and nobody else's do. Who comes back begins to look anew, and so does this. What was
slow before is found later, and is not asked for.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.incidents import found, open_incident
from trainmover.controller.events import SlowFound, SlowMeasured
from trainmover.controller.policies.stragglers.known import Effect
from trainmover.controller.state import Job, Outcome, Phase
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol.messages import Columns, Took
from trainmover.simulator.happenings import Decided, Replayed, Told, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

MACHINES_MIN = 3
QUICK, SLOW, AT_ONCE = 25, 30, 70
"""Steps by which it is known what is usual, and who is slow: ten of the latter would do. Where one
was slow at once, it takes the others' steps to know what is usual: 40 would do."""
MEASURED = 40
"""Steps after which it is known what a move has come to: twelve would do."""
HEALTHY, LONGER = 1.05, 1.15
"""Of a usual step: at most, and at least."""


class Slowness:
    """told: step -> rank -> how long it took, in this epoch; steps: that all have told.

    quick, slow   of them: those in which nobody was, and those in which one machine was, since
    late          machines that were slow at some time; spoilt: others were not as usual
    """

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        self.step_us = world.knobs.step_us
        knobs = world.knobs
        alike = knobs.stages == 1 and not knobs.alone and not knobs.once
        self.asks = alike and knobs.machines >= MACHINES_MIN and knobs.stragglers != "off"
        self._anew()
        if not self.asks:
            return {}
        return {Decided: self.decided, Told: self.heard, Replayed: self.replayed}

    def replayed(self, _: Replayed) -> None:
        self._anew()

    def _anew(self) -> None:
        self.found: set[MachineId] = set()
        self.late: set[MachineId] = set()
        self.spoilt = False
        self._begin(Epoch(-1))

    def _begin(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self.told: dict[Step, dict[Rank, int]] = defaultdict(dict)
        self.steps = self.quick = self.slow = 0

    def decided(self, moment: Decided) -> None:
        event = moment.event
        if isinstance(event, SlowFound) and event.machine is not None:
            self.found.add(event.machine)
        if isinstance(event, SlowMeasured):
            self._is_measured(moment.before, moment.after, event)

    def heard(self, moment: Told) -> None:
        """How long steps took that a rank has made, in this epoch, while nothing is under way."""
        fact, host = moment.fact, self.world.host
        if not isinstance(fact, Columns) or host is None:
            return
        job = host.control.job
        if job.epoch != self.epoch:
            self._begin(job.epoch)
        rests = job.phase is Phase.RUNNING and job.change is None and open_incident(job) is None
        if not rests or not job.all_recorded or fact.epoch != job.epoch:
            return
        for rank, took in fact.each_took():
            self._add(job, rank, took)

    def _add(self, job: Job, rank: Rank, took: Took) -> None:
        told = self.told[took.step]
        told[rank] = took.own_us
        if len(told) < job.spec.world_size:
            return
        del self.told[took.step]
        late = {
            job.seats[one // job.spec.nproc]
            for one, us in told.items()
            if us > HEALTHY * self.step_us
        }
        self.steps += 1
        self._count(
            late, min((us for us in told.values() if us > HEALTHY * self.step_us), default=0)
        )
        self._was_measured(job)

    def _count(self, late: set[MachineId], least_us: int) -> None:
        if not late:
            self.quick, self.slow = (0, 0) if self.slow else (self.quick + 1, 0)
            return
        first = not self.slow
        if len(late) > 1 or least_us < LONGER * self.step_us or (first and self.late):
            self.spoilt = True
        self.late |= late
        self.slow += 1
        (machine, *_) = late
        most = SLOW if self.quick >= QUICK else AT_ONCE
        if not self.spoilt and self.slow > most and machine not in self.found:
            raise Violation(f"{machine} is slow for {self.slow} steps, and nobody says so")

    # --- what a move has come to ----------------------------------------------------------------

    def _was_measured(self, job: Job) -> None:
        if self.steps < MEASURED or not job.stragglers.moves:
            return
        move = job.stragglers.moves[-1]
        past = found(job, move.incident)
        done = past is not None and past.outcome is Outcome.DONE
        if done and move.effect is Effect.OPEN and job.seats[move.slot] == move.joiner:
            raise Violation(f"nobody has measured what {move} has come to")

    @staticmethod
    def _is_measured(before: Job, after: Job, event: SlowMeasured) -> None:
        old = next((m for m in before.stragglers.moves if m.incident == event.incident), None)
        new = next((m for m in after.stragglers.moves if m.incident == event.incident), None)
        if old is None or new is None or old is new:
            return
        if (new.own_after_ms, new.usual_after_ms) != (event.own_ms, event.usual_ms):
            raise Violation(f"{event} has become {new}")
        was = (old.own_ms - old.usual_ms) / old.usual_ms
        now = (event.own_ms - event.usual_ms) / event.usual_ms
        if (new.effect is Effect.HELPED and now > 0.6 * was) or (
            new.effect is not Effect.HELPED and now < 0.4 * was
        ):
            raise Violation(f"{now:.0%} more than usual was {was:.0%} before the move: {new}")
        cordon = before.cordoned.get(new.leaver)
        if cordon is not None and new.leaver in after.machines:
            keeps = new.effect is Effect.HELPED or not cordon.reason.startswith("slow: ")
            if keeps != (new.leaver in after.cordoned):
                raise Violation(f"{new}; and {new.leaver} is cordoned: {not keeps}")
