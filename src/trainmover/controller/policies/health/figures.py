# SPDX-License-Identifier: Apache-2.0
"""Figures of a machine beside those of all: which is too far off. Pure.

Nothing is compared with a constant: what is slow for one cluster is quick for another. A figure is
too low if it is below the median of all by more than their spread explains, and by so much that it
matters. A few values far off, the machine's own among them, move neither median nor spread.
"""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

LEAST_KNOWN = 4
"""Of so few machines nobody can say which is the odd one."""
SPREADS = 6.0
"""Median absolute deviations, as standard ones of a normal law: what is beyond comes by chance once
in a billion."""
MATTERS = 0.3
"""Of the median."""
CLOCK_MATTERS_MS = 1000.0
MAD_TO_SIGMA = 1.4826

CLOCK = "clock_ms"
WORDS = {
    "memory_gb_s": ("its memory", "GB/s"),
    "disk_mb_s": ("its disk", "MB/s"),
    "processor_gflop_s": ("its processor", "GFLOP/s"),
    "loopback_gb_s": ("its loopback", "GB/s"),
    "network_mb_s": ("its network", "MB/s"),
    "gpu_tflop_s": ("its slowest GPU", "TFLOP/s"),
}


@dataclass(frozen=True)
class Norm:
    """Of one figure on all machines: median, and how far from it is usual."""

    median: float
    spread: float
    machines: int


def norms_of(every: Collection[Mapping[str, float]]) -> dict[str, Norm]:
    """Of each figure that enough machines have told. every: one of each machine."""
    known: dict[str, list[float]] = {}
    for figures in every:
        for name, value in figures.items():
            known.setdefault(name, []).append(value)
    return {name: _norm(told) for name, told in known.items() if len(told) >= LEAST_KNOWN}


def _norm(told: Sequence[float]) -> Norm:
    median = statistics.median(told)
    off = statistics.median(abs(one - median) for one in told)
    return Norm(median, SPREADS * MAD_TO_SIGMA * off, len(told))


def too_far_off(figures: Mapping[str, float], norms: Mapping[str, Norm]) -> str:
    """What of the figures is not as on other machines, in words; "" if nothing is.

    >>> norms = norms_of([{"disk_mb_s": rate} for rate in (500, 510, 480, 530, 60)])
    >>> too_far_off({"disk_mb_s": 60}, norms)
    'its disk has 60 MB/s, and the median of 5 machines is 500'
    >>> too_far_off({"disk_mb_s": 450}, norms)
    ''
    """
    for name, value in figures.items():
        norm = norms.get(name)
        if norm is None:
            continue
        less = norm.median - value
        if name == CLOCK:
            if abs(less) > max(norm.spread, CLOCK_MATTERS_MS):
                return f"its clock is {abs(less) / 1000:.1f} s off those of others"
        elif name in WORDS and less > max(norm.spread, MATTERS * norm.median):
            of, unit = WORDS[name]
            return (
                f"{of} has {_short(value)} {unit}, and the median of {norm.machines} machines is "
                f"{_short(norm.median)}"
            )
    return ""


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def in_words(figures: Mapping[str, float]) -> str:
    """All of them, for people.

    >>> in_words({"disk_mb_s": 1391.2, "clock_ms": 3.2, "of another version": 1.0})
    'its disk 1391 MB/s, its clock 3 ms off'
    """
    known = [
        f"{WORDS[name][0]} {_short(value)} {WORDS[name][1]}"
        for name, value in figures.items()
        if name in WORDS
    ]
    if CLOCK in figures:
        known.append(f"its clock {abs(figures[CLOCK]):.0f} ms off")
    return ", ".join(known)
