"""Rounds: after some steps every rank tells a hash of its one tensor, as it was when they were all
at the gate. Of ranks with equal ones the lowest tells it, and the others whose they have."""

from typing import TYPE_CHECKING

from trainmover.ids import Rank, Step
from trainmover.protocol import messages as m

if TYPE_CHECKING:
    from trainmover.simulator.ranks.training import Gate
    from trainmover.simulator.ranks.workers import Worker

EARLY = (3, 10)
LAYOUT, PATHS, SECTIONS = "one tensor", ["w"], [1, 0, 0]


def is_due(step: Step, every: int) -> bool:
    """Whether a round follows this step. every: 0: none does."""
    return every > 0 and (step in EARLY or step % every == 0)


def hash_of(worker: "Worker") -> bytes:
    """Of what it will hold after the step. Where ranks hold the same depends on the job."""
    return worker.holds.next().hash(worker.rank + 1 if worker.world.knobs.alone else 0)


def tell(worker: "Worker", gate: "Gate") -> None:
    """The rank's part, once it is through the gate; of one that is interrupted nobody hears."""
    hashes = gate.hashes
    mine = hashes[worker.rank]
    alike = min(rank for rank, hash_ in hashes.items() if hash_ == mine)
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
        )
    )
    if worker.steps_changed and worker.rank == 0:
        steps = worker.steps_changed
        trace = worker.world.program(worker.rank)
        worker.say(m.StepsChanged(rank=worker.rank, step=gate.step, trace=trace, compiled=steps))
        worker.steps_changed = ""
