# SPDX-License-Identifier: Apache-2.0
"""Time of an all_reduce over its size, a line for each arm. matplotlib is an extra."""

import statistics
from pathlib import Path
from typing import Any

from bench.collectives.calls import ALONE, Times
from bench.collectives.tables import CALL_ARMS
from bench.collectives.timing import size_said

STYLES = {
    "ours shm": ("#0b6e4f", "-"),
    "ours tcp": ("#0b6e4f", "--"),
    "gloo": ("#c1432b", "--"),
    "Open MPI shm": ("#7a7a7a", "-"),
    "Open MPI tcp": ("#7a7a7a", "--"),
}


def draw(path: Path, times: Times) -> bool:
    """Write the picture; False if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ranks = sorted({cell.ranks for cell in times if cell != ALONE})
    figure, axes = plt.subplots(1, len(ranks), figsize=(9, 4), sharey=True, squeeze=False)
    for axis, count in zip(axes[0], ranks, strict=True):
        _panel(axis, times, count)
    axes[0][0].set_ylabel("microseconds, median of the rounds")
    axes[0][0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True


def _panel(axis: Any, times: Times, ranks: int) -> None:
    for arm in CALL_ARMS:
        points = sorted(
            (cell.size_bytes, statistics.median(spent.median_us for spent in rounds))
            for cell, rounds in times.items()
            if (cell.arm, cell.ranks, cell.operation) == (arm, ranks, "all_reduce")
        )
        if points:
            colour, line = STYLES[arm]
            axis.plot(*zip(*points, strict=True), line, color=colour, marker="o", ms=3, label=arm)
    sizes = sorted({cell.size_bytes for cell in times if cell.operation == "all_reduce"})
    axis.set(xscale="log", yscale="log", title=f"all_reduce (f32 sum), {ranks} ranks")
    axis.set_xticks(sizes, [size_said(size) for size in sizes], rotation=45)
    axis.minorticks_off()
    axis.grid(axis="y", lw=0.4)
