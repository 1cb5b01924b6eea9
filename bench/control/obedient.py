# SPDX-License-Identifier: Apache-2.0
"""A machine that obeys at once: what each order of the controller is answered with."""

from dataclasses import dataclass, field

from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol import messages as m

STEP = Step(100)
"""What all ranks have committed last, before anybody says more."""
KEEPERS = ("m1", "m4")


@dataclass
class Obedient:
    """ranks: that its workers have, or have been told to take; by their places there."""

    name: MachineId
    nproc: int = 1
    ranks: list[Rank] = field(default_factory=list)
    step: Step = STEP
    joining: bool = False

    def facts(self, order: m.Order) -> list[tuple[int, m.WORKER_FACTS]]:
        """What its workers say to that."""
        match order:
            case m.RunRank(slot=slot):
                self._take(slot)
            case m.Bind(slot=slot):
                self._take(slot)
                self.joining = True
        said = [(local, one) for local in range(self.nproc) for one in self._of(local, order)]
        if isinstance(order, m.Switch):
            self.joining = False
        return said

    def vault(self, order: m.Interrupt, lost: list[Rank]) -> m.VaultHeld:
        """Two have the records of all that are lost: which ones would, is not what is measured."""
        kept = lost if self.name in KEEPERS else []
        return m.VaultHeld(
            epoch=order.epoch, records={rank: [Step(self.step + 1)] for rank in kept}
        )

    def _take(self, slot: Slot) -> None:
        self.ranks = [Rank(slot * self.nproc + local) for local in range(self.nproc)]

    def _of(self, local: int, order: m.Order) -> list[m.WORKER_FACTS]:
        """Of one worker."""
        match order:
            case m.StartWorkers():
                address = f"{self.name}/{local}"
                return [m.WorkerUp(pid=1 + local, address=address, torch="2", version="1")]
            case m.WarmUp(slot=slot):
                rank = Rank(slot * self.nproc + local)
                return [m.Warm(rank=rank, shadow_steps=3, trace="t", warm_ms=1, held_bytes=1)]
            case m.Hold(slot=slot):
                rank = Rank(slot * self.nproc + local)
                return [m.Held(rank=rank, trace="t", run_ms=1, held_bytes=1)]
        return self._of_rank(self.ranks[local], order) if self.ranks else []

    def _of_rank(self, rank: Rank, order: m.Order) -> list[m.WORKER_FACTS]:
        match order:
            case m.RunRank(epoch=epoch):
                recorded = m.Recorded(rank=rank, step=Step(3), trace="t", digest="d", bytes=1)
                return [m.Attached(rank=rank), self._first(rank, epoch), recorded]
            case m.Interrupt(epoch=epoch):
                return [m.Position(rank=rank, epoch=epoch, committed=self.step, gate=Step(0))]
            case m.Bind(epoch=epoch):
                return [m.Parked(rank=rank, epoch=epoch, trace="t", bind_ms=1)]
            case m.Verdict(epoch=epoch):
                return [m.AtBoundary(rank=rank, epoch=epoch, committed=self.step)]
            case m.Switch(epoch=epoch):
                switched = m.Switched(rank=rank, epoch=epoch)
                return [self._loaded(rank, epoch), switched] if self.joining else [switched]
            case m.Go(epoch=epoch):
                return [self._first(rank, epoch)]
            case _:
                return []

    def _first(self, rank: Rank, epoch: Epoch) -> m.Committed:
        rows = [m.Row(step=self.step, at_us=0, values={})]
        return m.Committed(rank=rank, epoch=epoch, rows=rows, first=True, gap_us=1, median_us=1)

    def _loaded(self, rank: Rank, epoch: Epoch) -> m.Loaded:
        certificate = m.Certificate(
            rank=rank, source_rank=Rank(0), step=self.step, epoch=epoch, source_digest="d",
            joiner_digest="d", trace="t", position="", bytes=1, state_ms=1.0,
        )  # fmt: skip
        return m.Loaded(rank=rank, epoch=epoch, certificate=certificate)
