# SPDX-License-Identifier: Apache-2.0
"""Downtime, by the same ruler for every arm.

downtime = first completed step after - last completed step before - median step, of one rank by its
own clock; of a job, the worst over the ranks whose machine stays.
"""

import itertools
import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """Rank `rank` completed step `step` at `at_us`, microseconds of the host's clock."""

    rank: int
    step: int
    at_us: int


@dataclass(frozen=True)
class Gap:
    """The longest stand-still of one rank in a stretch of time.

    step_before, step_after  completed on either side: equal neighbours unless steps were redone
    """

    rank: int
    downtime_ms: float
    step_before: int
    step_after: int

    @property
    def steps_lost(self) -> int:
        """Completed steps that had to be done again."""
        return max(0, self.step_before + 1 - self.step_after)


def median_step_ms(marks: Iterable[Mark]) -> float:
    """Median time between steps of a rank that follow each other."""
    ordered = sorted(marks, key=lambda mark: (mark.rank, mark.at_us))
    pairs = itertools.pairwise(ordered)
    return statistics.median(
        (b.at_us - a.at_us) / 1000
        for a, b in pairs
        if a.rank == b.rank and b.step == a.step + 1 and a.step > 3
    )


def longest_gap(marks: Iterable[Mark], *, rank: int, from_us: int, to_us: int) -> Gap | None:
    """The longest time between two completed steps of `rank` that overlaps [from_us, to_us].

    None if the rank completed no step after it.
    """
    mine = sorted((m for m in marks if m.rank == rank), key=lambda mark: mark.at_us)
    around = [(a, b) for a, b in itertools.pairwise(mine) if b.at_us > from_us and a.at_us < to_us]
    if not around:
        return None
    before, after = max(around, key=lambda pair: pair[1].at_us - pair[0].at_us)
    took_ms = (after.at_us - before.at_us) / 1000
    downtime_ms = max(0.0, took_ms - median_step_ms(mine))
    return Gap(rank, downtime_ms, before.step, after.step)


def worst_gap(marks: list[Mark], *, stayers: Iterable[int], from_us: int, to_us: int) -> Gap | None:
    """The gap of the stayer that stood still longest; None if one of them never went on."""
    gaps = [longest_gap(marks, rank=rank, from_us=from_us, to_us=to_us) for rank in stayers]
    known = [gap for gap in gaps if gap is not None]
    return max(known, key=lambda gap: gap.downtime_ms) if len(known) == len(gaps) else None
