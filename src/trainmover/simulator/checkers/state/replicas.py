# SPDX-License-Identifier: Apache-2.0
"""Corrupted state never spreads once it was found, and nobody healthy is accused of it.

A flaw that a round has named is known from then on, and with it all copies of it: no rank takes it
from another any more. A round accuses nobody who is right, as long as most of the holders are.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.compare.known import Divergence
from trainmover.controller.events import WorkerSaid
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Fingerprinted
from trainmover.simulator.happenings import Decided, Placed, Replayed, Violation
from trainmover.simulator.ranks.training import Gate

if TYPE_CHECKING:
    from trainmover.simulator.world import World

ROUNDS_KEPT = 4


class Replicas:
    """flaws: step of a round -> what every rank had then; known: those that rounds have named."""

    def __init__(self) -> None:
        self.flaws: dict[Step, dict[Rank, int]] = {}
        self.known: set[int] = set()

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        if not world.spec.fingerprint_every:
            return {}
        self.world = world
        return {
            Gate: self.gate,
            Decided: self.decided,
            Placed: self.placed,
            Replayed: self.replayed,
        }

    def gate(self, gate: Gate) -> None:
        if gate.hashes:
            self.flaws.pop(gate.step, None)
            self.flaws[gate.step] = {w.rank: w.holds.flaw for w in gate.members}
            for step in [*self.flaws][:-ROUNDS_KEPT]:
                del self.flaws[step]

    def decided(self, moment: Decided) -> None:
        event, before, after = moment.event, moment.before.comparison, moment.after.comparison
        if not isinstance(event, WorkerSaid) or not isinstance(event.fact, Fingerprinted):
            return
        if after.step != before.step:
            for divergence in after.divergences[len(before.divergences) :]:
                self._is_true(divergence)

    def _is_true(self, divergence: Divergence) -> None:
        flaws = self.flaws[divergence.step]
        right = [rank for rank in divergence.holders if not flaws[rank]]
        if len(right) == len(divergence.holders):
            raise Violation(f"ranks {divergence.holders} are said to differ, and are all right")
        if 2 * len(right) <= len(divergence.holders):
            return  # Most are wrong: they may accuse the others.
        if any(not flaws[rank] for rank in divergence.diverged):
            raise Violation(
                f"ranks {divergence.diverged} are said to have diverged; right are {right}"
            )
        if len(divergence.holders) >= 3 and not divergence.diverged:
            raise Violation(f"nobody of {divergence.holders} has diverged; right are {right}")
        self.known |= {flaws[rank] for rank in divergence.diverged}

    def placed(self, moment: Placed) -> None:
        flaw = moment.holds.flaw
        own = moment.back or moment.source == moment.worker.rank
        if flaw in self.known and not own:
            raise Violation(
                f"{moment.worker} has taken from rank {moment.source} what is known to be corrupted"
            )
        if flaw in self.known and not moment.back and self._others_are_right(moment.worker.rank):
            raise Violation(f"{moment.worker} has taken what is corrupted, and others had it right")

    def _others_are_right(self, rank: Rank) -> bool:
        """Whether the controller knows of a rank whose state this one should have."""
        host = self.world.host
        if host is None:
            return False
        comparison, nproc = host.job.comparison, self.world.spec.nproc
        family = comparison.families.get(rank)
        return rank in comparison.diverged and any(
            its == family and other not in comparison.diverged and other // nproc != rank // nproc
            for other, its in comparison.families.items()
        )

    def replayed(self, moment: Replayed) -> None:
        """What was torn off is not known to anybody any more."""
        if moment.torn:
            self.known.clear()
