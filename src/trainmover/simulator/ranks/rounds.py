# SPDX-License-Identifier: Apache-2.0
"""Rounds: after some steps every rank tells hashes of its tensors, as they were when they were all
at the gate. Of ranks with equal shared ones the lowest tells them, the others whose they have."""

from typing import TYPE_CHECKING

from trainmover.ids import Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.ranks.bits import Hashes

if TYPE_CHECKING:
    from trainmover.simulator.ranks.training import Gate
    from trainmover.simulator.ranks.workers import Worker

EARLY = (3, 10)
LAYOUT, PATHS = "five tensors", ["w", "momentum of w", "frozen", "mean", "count"]
SECTIONS = [3, 1, 1]


def is_due(step: Step, every: int) -> bool:
    """Whether a round follows this step. every: 0: none does."""
    return every > 0 and (step in EARLY or step % every == 0)


def hashes_of(worker: "Worker") -> Hashes:
    """Of what it will hold after the step. Where ranks hold the same depends on the job."""
    return worker.holds.next().hashes(worker.rank + 1 if worker.world.knobs.alone else 0)


def tell(worker: "Worker", gate: "Gate") -> None:
    """The rank's part, once it is through the gate; of one that is interrupted nobody hears."""
    hashes = gate.hashes
    mine, rest = hashes[worker.rank]
    alike = min(rank for rank, (shared, _) in hashes.items() if shared == mine)
    tells = worker.rank == min(hashes) and not worker.told_layout
    worker.told_layout |= tells
    worker.say(
        m.Fingerprinted(
            rank=worker.rank,
            epoch=worker.epoch,
            step=gate.step,
            layout=LAYOUT,
            paths=PATHS if tells else None,
            sections=SECTIONS if tells else [],
            like=None if alike == worker.rank else Rank(alike),
            shared=mine if alike == worker.rank else b"",
            rest=rest,
        )
    )
    if worker.steps_changed and worker.rank == 0:
        steps = worker.steps_changed
        trace = worker.world.program(worker.rank)
        worker.say(m.StepsChanged(rank=worker.rank, step=gate.step, trace=trace, compiled=steps))
        worker.steps_changed = ""
