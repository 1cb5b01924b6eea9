# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that is published has the state of every rank, as it was after that step."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Publish
from trainmover.simulator.happenings import Decided, Violation
from trainmover.simulator.ranks.snapshots import file_key

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Checkpoints:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        for effect in moment.effects:
            if isinstance(effect, Publish):
                step, states = effect.checkpoint.step, effect.checkpoint.states
                ranks = set(range(self.world.spec.world_size))
                if lacks := ranks - states.keys():
                    raise Violation(f"the checkpoint of step {step} lacks ranks {sorted(lacks)}")
                for rank, written in states.items():
                    for one in written:
                        kept = self.world.files.get(file_key(step, one.file))
                        if kept is None or (kept.rank, kept.holds.after) != (rank, step):
                            raise Violation(f"its file for rank {rank} after step {step} is {kept}")
