# SPDX-License-Identifier: Apache-2.0
"""A script of ours, with what trainmover takes of its main thread written to BENCH_DIR.

    own_time.py gpt --steps 200         examples/gpt.py
    own_time.py modules --steps 200     bench/many_modules.py

A line a step: rank, step, our nanoseconds on the main thread by its own clock, our Python calls,
and nanoseconds of all threads of the process, the script's own included. Ours is what lies inside
of a fetch, a step, an update and a report, without the script's function and the loader's `next`.
Calls are counted from the step BENCH_CALLS_FROM on, and there the times mean nothing; which
functions they were lies beside. Under torchrun there is nothing of ours, and only the last number
counts. This file is run from a copy in a folder `site-packages`, as what is installed: or its own
variables would be taken for the script's.
"""

import functools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import trainmover as tm
from bench import many_modules
from examples import gpt
from trainmover.lifeline import die_with
from trainmover.worker.api import JobBatches
from trainmover.worker.data.batches import Batches
from trainmover.worker.member import Member

SCRIPTS = {"gpt": gpt.main, "modules": many_modules.main}
OURS = ("run_step", "enter_update", "leave_update", "report", "fetch")


class Clock:
    """Of the main thread. is_ours: what runs now."""

    def __init__(self) -> None:
        self.ns = self.calls = 0
        self.functions: Counter[str] = Counter()
        self._counts = False
        self._is_ours = False
        self._since = 0

    def count(self) -> None:
        """From here on calls."""
        self._counts = True

    def turn(self, *, ours: bool) -> bool:
        """From here on it is ours, or not. What it was before."""
        now, before = time.thread_time_ns(), self._is_ours
        if before:
            self.ns += now - self._since
        self._is_ours, self._since = ours, now
        if self._counts:
            sys.setprofile(self._note if ours else None)
        return before

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename != __file__:
            self.calls += 1
            self.functions[f"{code.co_filename}:{code.co_qualname}"] += 1

    def around(self, function: Callable[..., Any], *, ours: bool) -> Callable[..., Any]:
        """The function, whose time is ours, or is not."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            before = self.turn(ours=ours)
            try:
                return function(*args, **kwargs)
            finally:
                self.turn(ours=before)

        return timed


class Timed:
    """An iterator whose `next` is not ours."""

    def __init__(self, clock: Clock, inner: Iterator[Any]) -> None:
        self._next = clock.around(inner.__next__, ours=False)

    def __next__(self) -> Any:
        return self._next()


def watch(clock: Clock) -> None:
    """From here on, in this process."""
    for name in OURS:
        setattr(Member, name, clock.around(getattr(Member, name), ours=True))
    run_step, begin_pass = Member.run_step, Batches._begin_pass

    known: dict[Callable[..., Any], Callable[..., Any]] = {}

    def run(member: Member, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if function not in known:
            known[function] = clock.around(function, ours=False)
        return run_step(member, known[function], args, kwargs)

    def begin(batches: Batches) -> None:
        begin_pass(batches)
        assert batches._iterator is not None
        batches._iterator = Timed(clock, batches._iterator)  # type: ignore[assignment]

    Member.run_step = run  # type: ignore[method-assign,assignment]
    Batches._begin_pass = begin  # type: ignore[method-assign,assignment]


def main() -> None:
    """A line is written where the script comes back for its next batch."""
    by_torchrun = "TRAINMOVER_RUN_ID" not in os.environ
    if by_torchrun:
        die_with(os.getppid())  # torchrun's agent leaves its workers behind if it is killed.
    clock, counted = Clock(), int(os.environ.get("BENCH_CALLS_FROM", "-1"))
    watch(clock)
    fetch = JobBatches.__next__
    path = Path(os.environ["BENCH_DIR"]) / f"own.{os.getpid()}.steps"
    script = SCRIPTS[sys.argv.pop(1)]
    with path.open("a", buffering=1) as lines:

        def marked_fetch(batches: JobBatches) -> Any:
            job = tm.attach()
            if job.steps == counted:
                clock.count()
            spent = f"{clock.ns} {clock.calls} {time.process_time_ns()}"
            lines.write(f"{job.rank} {job.steps} {spent}\n")
            return fetch(batches)

        JobBatches.__next__ = marked_fetch  # type: ignore[method-assign,assignment]
        script()
    path.with_suffix(".functions").write_text(json.dumps(clock.functions.most_common()))
    if by_torchrun:
        os._exit(0)  # gloo's threads abort one interpreter in ten that ends beside them.


if __name__ == "__main__":
    main()
