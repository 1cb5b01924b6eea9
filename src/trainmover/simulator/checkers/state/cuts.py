# SPDX-License-Identifier: Apache-2.0
"""A cut is complete: when it is said to be, every rank's snapshot of that step is somewhere.

What was on a machine that is lost is not said to be there any more."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.ids import Rank, Step
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Cuts:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        cut, before = moment.after.cut, moment.before.cut
        gone = moment.before.machines.keys() - moment.after.machines.keys()
        if cut is not None and gone:
            lost = {moment.before.machines[name].vault for name in gone}
            if kept := lost & {*cut.vaults.values(), *cut.further.values()}:
                raise Violation(f"snapshots of step {cut.step} are said to be in {sorted(kept)}")
        if cut is None or cut is before or (before is not None and before.step == cut.step):
            return
        ranks = set(range(self.world.spec.world_size))
        if set(cut.vaults) != ranks:
            raise Violation(f"the cut after step {cut.step} lacks ranks {ranks - set(cut.vaults)}")
        for rank in cut.vaults:
            self._holds_what_it_should(rank, cut.step)

    def _holds_what_it_should(self, rank: Rank, step: Step) -> None:
        held = [
            its.holds.after
            for worker in self.world.workers()
            if (its := worker.snapshots.of(rank, step)) is not None
        ]
        for box in self.world.boxes.values():
            kept = box.snapshots.get(rank, {})
            held += [kept[step].holds.after] if step in kept else []
        if any(after != step for after in held):
            raise Violation(f"snapshots of rank {rank} after step {step} are of {held}")
