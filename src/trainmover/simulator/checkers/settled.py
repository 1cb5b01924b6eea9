# SPDX-License-Identifier: Apache-2.0
"""After every decision all is decided: an event that says nothing changes nothing.

What waits for a fact goes on in the decision that has heard it. If one that says nothing sets it
going, it had been forgotten there, and stands still until something else happens. One decision in
`EVERY` is asked: it costs one more.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.decide import decide
from trainmover.controller.events import CheckpointFailed
from trainmover.controller.state import Job
from trainmover.ids import Epoch, Step
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

EVERY = 7


class Settled:
    def __init__(self) -> None:
        self.decisions = 0

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        self.decisions += 1
        if self.decisions % EVERY == 0:
            self._stays(moment.after, moment.event.at_us, moment.event)

    @staticmethod
    def _stays(job: Job, at_us: int, event: object) -> None:
        """From a checkpoint that nobody writes nothing follows."""
        nothing = CheckpointFailed(at_us=at_us, step=Step(-1), epoch=Epoch(-1), why="")
        later, effects = decide(job, nothing)
        if later.hanging != job.hanging:
            return  # Who stands still is judged before what else follows, and again at each beat.
        if effects:
            raise Violation(f"{effects} was not ordered at once, after {event}")
        if later != job:
            raise Violation(f"{_different(job, later)} was not so at once, after {event}")


def _different(job: Job, later: Job) -> str:
    names = [name for name in vars(job) if getattr(job, name) != getattr(later, name)]
    return ", ".join(f"{name} {getattr(later, name)}" for name in names)
