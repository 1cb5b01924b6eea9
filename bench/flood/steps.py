# SPDX-License-Identifier: Apache-2.0
"""What a job's step takes while somebody holds 1,000 connections to the run, of each kind.

One run for each limit of file descriptors, soft and hard. In it, stretches without and with held
connections take turns: each with is compared with the two without around it. What is held is held
from the same host, so what holding costs the cores counts too.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench import result
from bench.collectives.crew import Crew
from bench.flood.holder import AGAIN_PER_S, HELD, KINDS, Address, Holder, most_held
from bench.gaps import Mark, median_step_ms
from trainmover.server.http.roles import viewer_token

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "chaos")]  # Its runs are ours, too.

if TYPE_CHECKING:
    from chaos_run import Running

LIMITS = (256, 1024, 65536)
RATIO_MOST = 1.1
ROUNDS, STRETCH_S = 5, 3.0
QUICK_ROUNDS, QUICK_STRETCH_S = 2, 3.0
SMOKE_STRETCH_S = 0.5
STEPS_LEAST = 4
SETTLE_S = 0.5
PATIENCE_S = 120.0


@dataclass
class Held:
    """One kind of connections at one limit. Each list has one entry a round.

    core  what they cost the controller: its part of a core, less that without them
    """

    with_ms: list[float] = field(default_factory=list)
    without_ms: list[float] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    core: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Of each round's stretches, so that a change of load between rounds does not count."""
        pairs = zip(self.with_ms, self.without_ms, strict=True)
        return statistics.median(crowded / alone for crowded, alone in pairs)


Measured = dict[str, dict[str, Held]]
"""By limit, as it is called, and kind."""


def measure(*, quick: bool, smoke: bool = False) -> tuple[Measured, list[float]]:
    """Start a run for each limit. Return what was measured, and loads of the host.

    smoke: the lowest limit only, once
    """
    rounds, stretch_s = (QUICK_ROUNDS, QUICK_STRETCH_S) if quick else (ROUNDS, STRETCH_S)
    rounds, stretch_s = (1, SMOKE_STRETCH_S) if smoke else (rounds, stretch_s)
    those = limits(_hard_limit())[: 1 if smoke else None]
    measured: Measured = {}
    loads: list[float] = []
    for files, name in those:
        measured[name] = {kind: Held() for kind in KINDS}
        with Crew(1, lambda seat: Holder()) as crew, running(files) as (run, marks):
            crew.one(0, "become_nobody")
            job = _Job(run, marks, crew, stretch_s)
            for turn in range(rounds):
                for kind in list(KINDS)[:: -1 if turn % 2 else 1]:
                    job.compare(kind, measured[name][kind])
                loads.append(os.getloadavg()[0])
                said = f"{name} descriptors, round {turn + 1}: load {loads[-1]:.1f}"
                print(said, file=sys.stderr, flush=True)
            job.end()
    return measured, loads


def limits(hard: int) -> list[tuple[int, str]]:
    """Limits that can be had here, and what they are called."""
    here = {min(files, hard): files for files in LIMITS}
    return [
        (files, f"{files}" if files == wanted else f"{files} (not {wanted}: the host's limit)")
        for files, wanted in here.items()
    ]


def _hard_limit() -> int:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return max(LIMITS) if hard == resource.RLIM_INFINITY else hard


@contextmanager
def running(files: int) -> Iterator[tuple["Running", Callable[[], list[Mark]]]]:
    """Run a job of two machines whose processes may have so many descriptors. Yield the run, and
    what returns its marks so far."""
    from chaos_run import Running

    with tempfile.TemporaryDirectory(prefix="bench-flood-") as place:
        os.environ["BENCH_DIR"] = place
        script = [str(ROOT / "bench" / "timed_gpt.py"), "--steps", "1000000", "--batch", "8"]
        command = ["--machines", "2", *script, "--log-every", "1000000"]
        run = Running(Path(place), command, files=files)

        def marks() -> list[Mark]:
            lines = [
                line
                for path in Path(place).glob("steps.*")
                for line in path.read_text().splitlines()
            ]
            return [Mark(*map(int, line.split())) for line in lines if line.count(" ") == 2]

        try:
            run.until(run.run, "a run", PATIENCE_S)
            run.until(lambda: run.step() >= 10, "steps", PATIENCE_S)
            yield run, marks
        finally:
            run.kill()


class _Job:
    """A run that trains, and who holds connections to it."""

    def __init__(
        self, run: "Running", marks: Callable[[], list[Mark]], crew: Crew, stretch_s: float
    ) -> None:
        from listeners import listening

        found = run.run()
        assert found is not None
        self._run, self._marks, self._crew, self._stretch_s = run, marks, crew, stretch_s
        self._viewer = viewer_token(Path(found.token_file).read_bytes().strip()).decode()
        self._api: Address = ("127.0.0.1", int(found.api_url.rpartition(":")[2]))
        self._listeners: list[Address] = sorted(
            {
                ("127.0.0.1", one.port)
                for each in run.family()
                for one in listening(each)
                if one.port
            }
        )
        self._controller = psutil.Process(run.controller())
        self._epoch = self._now_epoch()
        self._before_ms, _ = self._stretch()

    def compare(self, kind: str, into: Held) -> None:
        """Hold such connections for a stretch, then none."""
        places = self._listeners if KINDS[kind].everywhere else [self._api]
        self._crew.one(0, "begin", kind, places, self._viewer)
        crowded_ms, crowded = self._stretch()
        held, opened = self._crew.one(0, "end")
        after_ms, alone = self._stretch()
        into.with_ms.append(crowded_ms)
        into.without_ms.append((self._before_ms + after_ms) / 2)
        into.core.append(crowded - alone)
        into.held.append(held)
        into.opened.append(opened)
        self._before_ms = after_ms

    def end(self) -> None:
        """Raise ValueError if the job did not train through all of it: nothing was measured."""
        if self._run.over or self._now_epoch() != self._epoch:
            raise ValueError(f"the job was disturbed:\n{self._run.output.read_text()}")

    def _now_epoch(self) -> int | None:
        return (self._run.status() or {}).get("epoch")

    def _stretch(self) -> tuple[float, float]:
        """Median milliseconds of a step in the time from now on, and what part of a core the
        controller takes. A stretch lasts until some steps are made, on a busy host, too."""
        time.sleep(SETTLE_S)
        from_us, spent_s = time.time_ns() // 1000, self._controller_s()
        begun_s, steps, made = time.monotonic(), set[int](), list[Mark]()
        while len(steps) < STEPS_LEAST and time.monotonic() - begun_s < PATIENCE_S:
            time.sleep(self._stretch_s)
            made = [mark for mark in self._marks() if mark.at_us >= from_us]
            steps = {mark.step for mark in made if mark.step > 3}
        core = (self._controller_s() - spent_s) / (time.monotonic() - begun_s)
        return median_step_ms(made), core

    def _controller_s(self) -> float:
        times = self._controller.cpu_times()
        return times.user + times.system


def judge(measured: Measured) -> list[result.Claim]:
    return [
        result.Claim(f"{limit} descriptors, {kind}: step / without", one.ratio, "ratio", RATIO_MOST)
        for limit, kinds in measured.items()
        for kind, one in kinds.items()
    ]


def tabulated(measured: Measured) -> list[str]:
    columns = "descriptors | held | a step, ms | without, ms | open at once | opened | of a core"
    lines = [f"| {columns} |", "|---|---|---|---|---|---|---|"]
    for limit, kinds in measured.items():
        for kind, one in kinds.items():
            values = (one.with_ms, one.without_ms, one.held, one.opened, one.core)
            crowded, alone, held, opened, core = (statistics.median(each) for each in values)
            cells = f"{crowded:.1f} | {alone:.1f} | {held:.0f} | {opened:.0f} | {core:.3f}"
            lines.append(f"| {limit} | {kind} | {cells} |")
    tried = most_held()
    lines += ["", f"{tried} connections are held as far as the run lets them; those that it closes"]
    lines += [f"are opened again, {AGAIN_PER_S} a second. Of a core: the controller's, for that."]
    if tried < HELD:
        lines += [f"{HELD} would be more than this user may have descriptors."]
    return lines
