# SPDX-License-Identifier: Apache-2.0
"""What trainmover takes of each rank's processor, measured inside: see `own_time`.

Of every arm two runs. Ours: first steps in which our time on the main thread is taken, and that
of all threads of the process, then steps in which our Python calls are counted, which takes time of
its own. And one under torchrun, for what all threads take more.
"""

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from bench.result import Claim
from trainmover.lifeline import die_with

ROOT = Path(__file__).resolve().parents[1]
BATCH = 4
OWN_TIME = Path(__file__).with_name("own_time.py")
FIRST_STEPS = 40
"""They are recorded, searched and looked at in full: what counts are the steps behind them."""
COUNTED_STEPS = 24
"""Behind those that are timed: what a step calls hardly changes from one to the next."""


@dataclass(frozen=True)
class Arm:
    """A script of `own_time`, with flags, and what a step of it may take. None: no claim."""

    script: str
    said: str
    ms: float | None = None
    calls: int | None = None
    flags: tuple[str, ...] = ()


ARMS = (
    Arm("gpt", "examples/gpt.py", ms=0.5, calls=450),
    Arm("gpt", "the same, so small that caches keep us", flags=("--dim", "32", "--context", "8")),
    Arm("modules", "160 modules with 159 buffers", ms=1.0),
)
"""Steps of the first wipe the processor's caches, as work on a CPU does; those of the second leave
them alone, as work on an accelerator does. We do the same in both."""


@dataclass(frozen=True)
class Spent:
    """Medians of a step: our milliseconds and calls on the main thread, and those of all threads,
    the script's own included. functions: our calls a step, by function."""

    own_ms: float
    calls: float
    all_ms: float
    functions: dict[str, float]


@dataclass(frozen=True)
class Cost:
    """Of one arm. more_ms: what all threads take more than under torchrun."""

    own_ms: float
    calls: float
    more_ms: float
    functions: dict[str, float]


Costs = Mapping[Arm, Cost]


def measured(arm: Arm, ours: Sequence[str], bare: Sequence[str], steps: int) -> Cost:
    """ours, bare: module and flags that start a script on some ranks."""
    under_ours, under_bare = spent(ours, arm, steps), spent(bare, arm, steps)
    more_ms = under_ours.all_ms - under_bare.all_ms
    return Cost(under_ours.own_ms, under_ours.calls, more_ms, under_ours.functions)


def launch(arguments: Sequence[str], here: str, **more: str) -> None:
    """Run a module of Python to its end; what it measures it leaves in `here`.

    arguments: the module and what it gets. more: of its environment
    Raises CalledProcessError if it fails.
    """
    environment = os.environ | {
        "BENCH_DIR": here,
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        **more,
    }
    subprocess.run(
        [sys.executable, "-m", *arguments],
        env=environment,
        cwd=ROOT,
        check=True,
        timeout=600,
        stdout=subprocess.DEVNULL,
        preexec_fn=partial(die_with, os.getpid()),
    )


def spent(started_by: Sequence[str], arm: Arm, steps: int) -> Spent:
    """Of one run, over all ranks. Raises CalledProcessError if it fails."""
    until = FIRST_STEPS + steps
    with tempfile.TemporaryDirectory(prefix="bench-own-") as here:
        installed = Path(here) / "site-packages"
        installed.mkdir()
        copy = shutil.copy(OWN_TIME, installed)
        size = ["--steps", str(until + COUNTED_STEPS), "--batch", str(BATCH)]
        script = [str(copy), arm.script, *arm.flags, *size]
        launch([*started_by, *script], here, BENCH_CALLS_FROM=str(until))
        lines = [_numbers(path) for path in Path(here).glob("own.*.steps")]
        named = next(Path(here).glob("own.*.functions")).read_text()
    timed = [step for rank in lines for step in _each_step(rank, FIRST_STEPS, until)]
    counted = [step for rank in lines for step in _each_step(rank, until)]
    own, _, every = (statistics.median(column) for column in zip(*timed, strict=True))
    made = statistics.median(calls for _, calls, _ in counted)
    functions = {name: count / COUNTED_STEPS for name, count in json.loads(named)}
    return Spent(own / 1e6, made, every / 1e6, functions)


def _numbers(path: Path) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in path.read_text().splitlines()]


def _each_step(lines: list[list[int]], first: int, until: int | None = None) -> list[list[int]]:
    """What each step took from the fetch behind step `first` to that behind `until`: our
    nanoseconds and calls, and those of all threads."""
    later = [line[2:] for line in lines if first <= line[1] and (until is None or line[1] <= until)]
    pairs = itertools.pairwise(later)
    return [[b - a for a, b in zip(*pair, strict=True)] for pair in pairs]


def raw(costs: Costs) -> dict[str, object]:
    """As a result keeps it."""
    return {arm.said: asdict(cost) for arm, cost in costs.items()}


def judge(costs: Costs) -> list[Claim]:
    """Of every arm."""
    claims = []
    for arm, cost in costs.items():
        said = f"of the main thread a step, {arm.said}"
        if arm.ms is not None:
            claims.append(Claim(f"our time {said}", cost.own_ms, "ms", arm.ms))
        if arm.calls is not None:
            claims.append(Claim(f"our Python calls {said}", cost.calls, "calls", arm.calls))
    return claims


def tabulated(costs: Costs) -> list[str]:
    """What it takes."""
    lines = ["| a step and rank | ours, main thread | Python calls | more, all threads |"]
    lines += ["|---|---|---|---|"]
    for arm, cost in costs.items():
        numbers = f"{cost.own_ms:.2f} ms | {cost.calls:.0f} | {cost.more_ms:.1f} ms"
        lines.append(f"| {arm.said} | {numbers} |")
    return lines
