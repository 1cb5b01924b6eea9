# SPDX-License-Identifier: Apache-2.0
"""What a rank says of itself is so, at the moment at which it says it.

position     what it has committed is what its memory holds; in a gate its record is in a vault
boundary     it stands behind the step that the verdict of that epoch has named
snapshots    each is of the step that it is said to be of, and it keeps two older ones at most
rows         it says each of its steps once, without a gap, in their order
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Send
from trainmover.ids import Epoch, MachineId, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Decided, Said, Violation

if TYPE_CHECKING:
    from trainmover.simulator.ranks.workers import Worker
    from trainmover.simulator.world import World

KEPT_MAX = 2


class Words:
    """verdicts: of each epoch. rows: of a process, the newest step that it has told."""

    def __init__(self) -> None:
        self.verdicts: dict[Epoch, Step] = {}
        self.rows: dict[tuple[int, int], Step] = {}

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Said: self.said, Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        for effect in moment.effects:
            if isinstance(effect, Send) and isinstance(effect.order, m.Verdict):
                self.verdicts[effect.order.epoch] = effect.order.committed

    def said(self, moment: Said) -> None:
        fact = moment.fact
        if not isinstance(fact, m.Joint | m.Snapped):
            return
        worker = self._who(moment.machine, fact.rank)
        if worker is None:
            return
        match fact:
            case m.Position():
                self._stands_there(worker, fact)
            case m.AtBoundary():
                self._is_behind(worker, fact)
            case m.Committed():
                self._goes_on(worker, fact)
            case m.Snapped():
                self._has_it(worker, fact)

    def _who(self, machine: MachineId, rank: int) -> "Worker | None":
        box = self.world.boxes[machine]
        return next((one for one in box.workers if one.rank == rank and one.live), None)

    def _stands_there(self, worker: "Worker", fact: m.Position) -> None:
        if fact.committed != worker.step or worker.holds.after != worker.step:
            raise Violation(f"{worker} says {fact}, and holds {worker.holds}")
        if fact.gate not in (0, worker.step + 1):
            raise Violation(f"{worker} is in no gate of a step that is its next: {fact}")
        if fact.finished != worker.finished:
            raise Violation(f"{worker} says {fact}, and its script is {worker.finished}")

    def _is_behind(self, worker: "Worker", fact: m.AtBoundary) -> None:
        if fact.committed != worker.holds.after:
            raise Violation(f"{worker} says {fact}, and holds {worker.holds}")
        verdict = self.verdicts.get(fact.epoch)
        if verdict is not None and fact.committed != verdict and not worker.finished:
            raise Violation(f"{worker} says {fact}, and the verdict was {verdict}")

    def _goes_on(self, worker: "Worker", fact: m.Committed) -> None:
        steps = [row.step for row in fact.rows]
        if not steps or steps != list(range(steps[0], steps[0] + len(steps))):
            raise Violation(f"{worker} tells steps {steps}")
        if steps[-1] > worker.holds.after:
            raise Violation(f"{worker} tells steps {steps}, and holds {worker.holds}")
        key = worker.pid, worker.life
        before = self.rows.get(key)
        if before is not None and steps[0] != before + 1:
            raise Violation(f"{worker} tells steps {steps} after step {before}")
        self.rows[key] = steps[-1]

    def _has_it(self, worker: "Worker", fact: m.Snapped) -> None:
        held = worker.snapshots.of(worker.rank, fact.step)
        if held is not None and held.holds.after != fact.step:  # It may be gone by now.
            raise Violation(f"{worker} says {fact}, and has {held}")
        kept = [step for step in range(fact.step) if worker.snapshots.of(worker.rank, Step(step))]
        if len(kept) > KEPT_MAX:
            raise Violation(f"{worker} keeps the snapshots of steps {kept} too")
