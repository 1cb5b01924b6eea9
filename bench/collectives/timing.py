# SPDX-License-Identifier: Apache-2.0
"""How long calls took, and how they are summed up over ranks and rounds."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

BATCH = 10  # calls of one sample, where calls are short
WARM_UP = BATCH
WARM_UP_OF_LONG = 1


@dataclass(frozen=True)
class Spent:
    """Microseconds of one call, of the slowest rank of one round: median of samples, and mean."""

    median_us: float
    mean_us: float


def timed(call: Callable[[], object], samples: int, batch: int = 1) -> Spent:
    """Of this rank. A sample is `batch` calls in a row, divided.

    Where two ranks share a core, every second call finds the other's part done already and costs
    nothing, so that a median over single calls would be either of two figures that are both wrong.
    """
    clock = time.perf_counter_ns
    took = []
    for _ in range(WARM_UP if batch > 1 else WARM_UP_OF_LONG):
        call()
    for _ in range(samples):
        before = clock()
        for _ in range(batch):
            call()
        took.append((clock() - before) / batch)
    return Spent(statistics.median(took) / 1000, statistics.fmean(took) / 1000)


def slowest(ranks: list[Spent]) -> Spent:
    """Nothing is won by a rank that leaves early and lets the others do the work."""
    return Spent(max(rank.median_us for rank in ranks), max(rank.mean_us for rank in ranks))


UNITS = ((1.0, "us"), (1e3, "ms"), (1e6, "s"))


def said(us: float) -> str:
    """With a unit that fits: 0.84 us, 12.3 ms."""
    unit_us, unit = _unit(us)
    return f"{_digits(us / unit_us)} {unit}"


def pair_said(first_us: float, second_us: float) -> str:
    """Both in the unit that fits the first: 0.84 (1.2) us."""
    unit_us, unit = _unit(first_us)
    return f"{_digits(first_us / unit_us)} ({_digits(second_us / unit_us)}) {unit}"


def _unit(us: float) -> tuple[float, str]:
    return [pair for pair in UNITS if us >= pair[0] or pair == UNITS[0]][-1]


def _digits(value: float) -> str:
    """Three, and never a power of ten."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def size_said(size_bytes: int) -> str:
    """8 B, 64 KiB, 1 MiB."""
    for power, unit in ((20, "MiB"), (10, "KiB")):
        if size_bytes >= 1 << power:
            return f"{size_bytes >> power} {unit}"
    return f"{size_bytes} B"
