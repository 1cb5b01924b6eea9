"""Machines that obey at once: what each order of the controller is answered with. One rank each."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

from trainmover.controller import Job, decide
from trainmover.controller.effects import Effect, Send
from trainmover.controller.events import (
    EVENTS,
    AgentSaid,
    Lost,
    MachineJoined,
    MachinesLost,
    WorkerSaid,
)
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol import messages as m

STEP = Step(100)
"""What all ranks have committed last."""


class Machines:
    """They join, and say what follows; `play` decides about all of it, one event after another."""

    def __init__(self, machines: int, standbys: int) -> None:
        spec = m.JobSpec(run_id="bench", argv=["train.py"], machines=machines, standbys=standbys)
        self.job = Job(spec)
        names = [MachineId(f"m{number + 1}") for number in range(machines + standbys)]
        self.joins = [
            MachineJoined(at_us=0, machine=name, standby=at >= machines, vault=name, host=name)
            for at, name in enumerate(names)
        ]
        self.ranks = {name: Rank(at) for at, name in enumerate(names) if at < machines}
        self._joining: set[MachineId] = set()

    def play(self, events: Iterable[EVENTS]) -> Iterator[int]:
        """Decide until nobody has anything to say; after each event how many orders it gave."""
        coming = deque(events)
        while coming:
            self.job, effects = decide(self.job, coming.popleft())
            yield len(effects)
            coming.extend(chain.from_iterable(map(self._answers, effects)))

    def loss(self, names: Iterable[MachineId]) -> MachinesLost:
        """They are gone, all at once."""
        lost = [Lost(machine=name, why="link broke", heard_us=0) for name in names]
        for one in lost:
            self.ranks.pop(one.machine, None)
        return MachinesLost(at_us=0, lost=lost)

    def _answers(self, effect: Effect) -> list[EVENTS]:
        if not isinstance(effect, Send) or effect.machine not in self.job.machines:
            return []
        name = effect.machine
        facts = [
            WorkerSaid(at_us=0, machine=name, local_rank=0, fact=fact)
            for fact in self._facts(name, effect.order)
        ]
        if isinstance(effect.order, m.Interrupt):
            return [*facts, AgentSaid(at_us=0, machine=name, fact=self._vault(effect.order))]
        return [*facts]

    def _vault(self, order: m.Interrupt) -> m.VaultHeld:
        """Each has the records of all: which one would, is not what is measured."""
        change = self.job.change
        lost = () if change is None else (*change.joiners, *change.missing)
        return m.VaultHeld(epoch=order.epoch, records={Rank(at): [Step(STEP + 1)] for at in lost})

    def _facts(self, name: MachineId, order: m.Order) -> list[m.WorkerFact]:
        rank = self.ranks.get(name)
        match order:
            case m.StartWorkers():
                return [m.WorkerUp(pid=1, address=name, torch="2", version="1")]
            case m.RunRank(slot=slot):
                self.ranks[name] = Rank(slot)
                recorded = m.Recorded(rank=Rank(slot), step=Step(3), trace="t", digest="d", bytes=1)
                return [m.Attached(rank=Rank(slot)), self._first(Rank(slot), order.epoch), recorded]
            case m.WarmUp(slot=slot):
                return [m.Warm(rank=Rank(slot), shadow_steps=3, trace="t", warm_ms=1, held_bytes=1)]
            case m.Hold(slot=slot):
                return [m.Held(rank=Rank(slot), trace="t", run_ms=1, held_bytes=1)]
            case m.Interrupt(epoch=epoch) if rank is not None:
                return [m.Position(rank=rank, epoch=epoch, committed=STEP, gate=Step(0))]
            case m.Bind(epoch=epoch, slot=slot):
                self.ranks[name] = Rank(slot)
                self._joining.add(name)
                return [m.Parked(rank=Rank(slot), epoch=epoch, trace="t", bind_ms=1)]
            case m.Verdict(epoch=epoch) if rank is not None:
                return [m.AtBoundary(rank=rank, epoch=epoch, committed=STEP)]
            case m.Switch(epoch=epoch) if rank is not None:
                switched = m.Switched(rank=rank, epoch=epoch)
                joins = name in self._joining
                self._joining.discard(name)
                return [self._loaded(rank, epoch), switched] if joins else [switched]
            case m.Go(epoch=epoch) if rank is not None:
                return [self._first(rank, epoch)]
            case _:
                return []

    def _first(self, rank: Rank, epoch: Epoch) -> m.Committed:
        rows = [m.Row(step=STEP, at_us=0, values={})]
        return m.Committed(rank=rank, epoch=epoch, rows=rows, first=True, gap_us=1, median_us=1)

    def _loaded(self, rank: Rank, epoch: Epoch) -> m.Loaded:
        certificate = m.Certificate(
            rank=rank, source_rank=Rank(0), step=STEP, epoch=epoch, source_digest="d",
            joiner_digest="d", trace="t", position="", bytes=1, state_ms=1.0,
        )  # fmt: skip
        return m.Loaded(rank=rank, epoch=epoch, certificate=certificate)
