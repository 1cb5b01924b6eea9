# SPDX-License-Identifier: Apache-2.0
"""What ranks do together: gates, the flags they carry, and where each rank really stands.

A gate is an all-reduce: it is through once every rank has entered it in one epoch and their
machines reach each other. Then each passes it on its own, unless it is interrupted before.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainmover.ids import Epoch, Rank, Step
from trainmover.simulator.ranks.bits import Hashes
from trainmover.simulator.ranks.rounds import hashes_of, is_due
from trainmover.simulator.ranks.steps import pass_gate

if TYPE_CHECKING:
    from trainmover.simulator.ranks.workers import Worker
    from trainmover.simulator.world import World


@dataclass
class Gate:
    """One that is through. newest, oldest: of the steps in which its members are; pause: epoch that
    a pause is asked for; flag: the highest of the members', for their snapshots; hashes: of every
    rank's state after it, if a round follows."""

    epoch: Epoch
    step: Step
    members: list["Worker"]
    newest: Step
    oldest: Step
    pause: Epoch
    flag: int
    hashes: dict[Rank, Hashes] = field(default_factory=dict)


@dataclass
class Training:
    """steps: after which the script ends. bug: a rank that ends otherwise than the others then, and
    how: it `raises`, `exits` with a status, or `goes on`; None: none does."""

    world: "World"
    steps: int
    open: dict[tuple[Epoch, Step], Gate] = field(default_factory=dict)
    newest: Step = Step(0)
    bug: tuple[Rank, str] | None = None

    def how_ends(self, rank: Rank) -> str:
        """ "" as it should."""
        return self.bug[1] if self.bug is not None and self.bug[0] == rank else ""

    def entered(self, worker: "Worker") -> None:
        """One more is in the gate; the last opens it."""
        inside = self._inside(worker.epoch, worker.gate)
        if len(inside) >= self.world.spec.world_size and self._connected(inside):
            self._open(worker.epoch, worker.gate, inside)

    def look_again(self) -> None:
        """The network has changed: a gate may be through that was not."""
        waiting = {(w.epoch, w.gate) for w in self.world.workers() if w.live and w.gate}
        for epoch, step in sorted(waiting - self.open.keys()):
            inside = self._inside(epoch, step)
            if len(inside) >= self.world.spec.world_size and self._connected(inside):
                self._open(epoch, step, inside)

    def _inside(self, epoch: Epoch, step: Step) -> list["Worker"]:
        return [
            w
            for w in self.world.workers()
            if w.gate == step and w.live and w.epoch == epoch and not w.tainted
        ]

    def _connected(self, inside: list["Worker"]) -> bool:
        network = self.world.network
        if not network.cuts:
            return True
        names = sorted({w.box.name for w in inside})
        return all(network.reach(a, b) for a in names for b in names if a < b)

    def _open(self, epoch: Epoch, step: Step, inside: list["Worker"]) -> None:
        steps = [Step(w.step + 1) for w in inside]
        pause = max(w.standing.pause_flag for w in inside)
        flag = max(w.snapshots.flag(w.rank, step) for w in inside)
        gate = Gate(epoch, step, inside, max(steps), min(steps), pause, flag)
        if is_due(step, self.world.spec.fingerprint_every):
            gate.hashes = {w.rank: hashes_of(w) for w in inside}
        self.open[epoch, step] = gate
        self.newest = max(self.newest, step)
        self.world.tell(gate)
        for worker in inside:
            worker.later(self.world.between(100, 2000), pass_gate, worker, gate)
