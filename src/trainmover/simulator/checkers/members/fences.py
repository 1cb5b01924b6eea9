# SPDX-License-Identifier: Apache-2.0
"""Who was given up never commits again: not in an epoch that came after it was shut out. Where a
crash tears that off the journal, whoever is a member by what is left was never given up."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.ids import Epoch
from trainmover.simulator.happenings import Fenced, Replayed, Stepped, Violation
from trainmover.simulator.ranks.training import Gate
from trainmover.simulator.ranks.workers import Worker

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Fences:
    """out: incarnation of an agent -> epoch in force when it was shut out. newest: of a gate that
    was through, which a torn journal may not know of."""

    def __init__(self) -> None:
        self.out: dict[str, Epoch] = {}
        self.newest = Epoch(0)

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {
            Fenced: self.fenced,
            Gate: self.gate,
            Stepped: self.stepped,
            Replayed: self.replayed,
        }

    def fenced(self, moment: Fenced) -> None:
        self.out[moment.incarnation] = max(moment.epoch, self.newest)

    def replayed(self, moment: Replayed) -> None:
        if moment.torn:
            for machine in moment.job.machines:
                self.out.pop(self.world.boxes[machine].incarnation, None)

    def gate(self, gate: Gate) -> None:
        self.newest = max(self.newest, gate.epoch)
        for worker in gate.members:
            self._is_in(worker, gate.epoch)

    def stepped(self, moment: Stepped) -> None:
        self._is_in(moment.worker, moment.epoch)

    def _is_in(self, worker: Worker, epoch: Epoch) -> None:
        since = self.out.get(worker.box.incarnation)
        if since is not None and epoch > since:
            raise Violation(f"{worker} was shut out in epoch {since} and trains in {epoch}")
