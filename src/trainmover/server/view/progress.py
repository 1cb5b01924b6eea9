# SPDX-License-Identifier: Apache-2.0
"""How far each rank is and how fast, from what it commits. In memory only."""

import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.journal import CommittedRow
from trainmover.protocol.messages import (
    Columns,
    Heartbeat,
    Taking,
    Values,
    Watched,
    Weighed,
    named,
    plain,
)

RECENT_STEPS = 64


@dataclass
class RankProgress:
    """reported: by the newest step; gaps_us: between the last commits of one epoch."""

    step: Step = Step(0)
    reported: Values = ((), b"")
    at_us: int = 0
    gaps_us: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    _median: tuple[int, float | None] = (0, None)

    @property
    def step_ms(self) -> float | None:
        """Median milliseconds of recent steps; None before the second. Looked up once a step."""
        if self._median[0] != self.at_us:
            known = statistics.median(self.gaps_us) / 1000.0 if self.gaps_us else None
            self._median = (self.at_us, known)
        return self._median[1]

    @property
    def values(self) -> dict[str, float]:
        """What the newest step reported."""
        return named(self.reported)

    def take(self, rows: Columns, index: int) -> list[int]:
        """Those of the rank at that place. The gaps between steps that nothing has cut short or
        held up, in microseconds."""
        gaps_us: list[int] = []
        row = index * len(rows.steps)
        first = rows.first
        for step, at_us in zip(rows.steps, rows.at_us[row : row + len(rows.steps)], strict=True):
            if step == self.step + 1 and self.at_us and not first:
                gaps_us.append(at_us - self.at_us)
            self.step, self.at_us, first = step, at_us, False
        self.reported = rows.names, rows.values_of(row + len(rows.steps) - 1)
        self.gaps_us += gaps_us
        return gaps_us

    def restore(self, row: CommittedRow, *, same_epoch: bool) -> None:
        """Take a row that was told of long ago."""
        if same_epoch and row.step == self.step + 1:
            self.gaps_us.append(row.at_us - self.at_us)
        self.step, self.reported, self.at_us = row.step, plain(row.values), row.at_us


def speed_of(ranks: Iterable[RankProgress]) -> float | None:
    """Of the first that knows: all ranks pass a gate together, so each is as fast as any other, and
    of thousands not all need be asked."""
    return next((ms for rank in ranks if (ms := rank.step_ms) is not None), None)


class Progress:
    """Of all ranks."""

    def __init__(self) -> None:
        self.ranks: dict[Rank, RankProgress] = {}
        self.weighed: dict[Rank, Weighed] = {}
        self.watched: dict[Rank, Watched] = {}
        self.vaults: dict[MachineId, Heartbeat] = {}
        self._taking: dict[Rank, Taking] = {}

    def take(self, rows: Columns) -> list[int]:
        """Rank 0's gaps, if it is among these; as of the rank."""
        gaps_us: list[int] = []
        for index, rank in enumerate(rows.ranks):
            of_rank = self.ranks.get(rank) or self.ranks.setdefault(rank, RankProgress())
            its_us = of_rank.take(rows, index)
            if rank == 0:
                gaps_us += its_us
        return gaps_us

    def of(self, ranks: Iterable[Rank]) -> tuple[Step | None, float | None]:
        """The step that all of them have committed, of those heard of, and ms a step."""
        known = [self.ranks[rank] for rank in ranks if rank in self.ranks]
        return min((rank.step for rank in known), default=None), speed_of(known)

    def restore(self, rows: Iterable[CommittedRow]) -> None:
        """Begin with what stands in a journal: the newest rows, by rank and step."""
        before: CommittedRow | None = None
        for kept in rows:
            same = before is not None and (before.rank, before.epoch) == (kept.rank, kept.epoch)
            self.ranks.setdefault(kept.rank, RankProgress()).restore(kept, same_epoch=same)
            before = kept

    def note(self, fact: Taking | Weighed | Watched) -> None:
        """Keep the newest of each rank."""
        if isinstance(fact, Taking):
            self._taking[fact.rank] = fact
        elif isinstance(fact, Watched):
            self.watched[fact.rank] = fact
        else:
            self.weighed[fact.rank] = fact

    def taken(self, epoch: Epoch) -> tuple[int, int] | None:
        """Bytes that the joiners of `epoch` have, and are to have; None if none has said so."""
        said = [fact for fact in self._taking.values() if fact.epoch == epoch]
        if not said:
            return None
        return sum(fact.bytes for fact in said), sum(fact.bytes_whole for fact in said)

    @property
    def newest(self) -> Step:
        """The last step that any rank has told of: by the gate, all have committed it."""
        return max((rank.step for rank in self.ranks.values()), default=Step(0))

    @property
    def step(self) -> Step:
        """The last step that every rank heard of has committed; 0 before any."""
        return min((rank.step for rank in self.ranks.values()), default=Step(0))

    @property
    def step_ms(self) -> float | None:
        """Of the lowest rank that knows."""
        return speed_of(self.ranks[rank] for rank in sorted(self.ranks))

    @property
    def loss(self) -> float | None:
        """What the lowest rank that reports one calls `loss`."""
        for rank in sorted(self.ranks):
            if "loss" in self.ranks[rank].values:
                return self.ranks[rank].values["loss"]
        return None
