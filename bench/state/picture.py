# SPDX-License-Identifier: Apache-2.0
"""The pause for state over its size, and under limits. matplotlib is an extra."""

import statistics
from pathlib import Path

COLOUR = "#0b6e4f"


def draw(
    path: Path, pause: dict[int, list[float]], limits: dict[int, list[float]], limited: int
) -> bool:
    """Write the picture; False if matplotlib is not installed.

    pause   size in bytes -> seconds, without a limit
    limits  bytes a second -> seconds, for `limited` bytes
    """
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (sizes, rates) = plt.subplots(1, 2, figsize=(9, 4))
    sizes.plot(*_points(pause, 1e6), "-", color=COLOUR, marker="o", ms=3)
    sizes.set(xscale="log", yscale="log", xlabel="state, MB", ylabel="pause for state, ms")
    sizes.set_title("no limit")
    least = [limited / limit * 1000 for limit in sorted(limits)]
    rates.plot(*_points(limits, 1e9), "-", color=COLOUR, marker="o", ms=3, label="measured")
    rates.plot(_points(limits, 1e9)[0], least, ":", color="#7a7a7a", label="size / limit")
    rates.set(xscale="log", yscale="log", xlabel="limit, GB/s")
    rates.set_title(f"{limited // 10**6} MB under a limit")
    rates.legend(frameon=False)
    for axis in (sizes, rates):
        axis.grid(lw=0.4)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True


def _points(times: dict[int, list[float]], unit: float) -> tuple[list[float], list[float]]:
    """In that unit, and in milliseconds."""
    keys = sorted(times)
    return [key / unit for key in keys], [statistics.median(times[key]) * 1000 for key in keys]
