# SPDX-License-Identifier: Apache-2.0
"""Nobody of another version takes part: an agent of another trainmover is never in the job, and no
process of another torch ever has a rank beside those of the job's."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.simulator.happenings import Decided, Stepped, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Versions:
    """seen: whether the job's ranks run the other torch; None: nobody has made a step."""

    def __init__(self) -> None:
        self.seen: bool | None = None

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        checks: dict[type, Callable[[Any], None]] = {}
        if world.knobs.old:
            checks[Decided] = self.decided
        if world.knobs.others:
            checks[Stepped] = self.stepped
        return checks

    def decided(self, moment: Decided) -> None:
        for name in self.world.knobs.old:
            if name in moment.after.machines:
                raise Violation(f"{name} is of another version, and in the job")

    def stepped(self, moment: Stepped) -> None:
        other = moment.worker.box.name in self.world.knobs.others
        if self.seen is None:
            self.seen = other
        if other is not self.seen:
            raise Violation(f"{moment.worker} has another torch than the ranks before it")
