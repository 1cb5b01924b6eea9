# SPDX-License-Identifier: Apache-2.0
"""Clock of trainmover's part of a rank's main thread: see `own_time`, which runs a script under it.

It is loaded under a name of trainmover's, so that a look at the script sees neither its frames nor
its counters.
"""

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import trainmover as tm
from trainmover.worker.api import JobBatches
from trainmover.worker.data.batches import Batches
from trainmover.worker.member import Member

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


def start(path: Path, counted: int) -> Clock:
    """Return a clock that writes a line where the script comes back for its next batch.

    counted  step from which calls are counted
    """
    clock, fetch = Clock(), JobBatches.__next__
    watch(clock)
    lines = path.open("a", buffering=1)

    def marked_fetch(batches: JobBatches) -> Any:
        job = tm.attach()
        if job.steps == counted:
            clock.count()
        spent = f"{clock.ns} {clock.calls} {time.process_time_ns()}"
        lines.write(f"{job.rank} {job.steps} {spent}\n")
        return fetch(batches)

    JobBatches.__next__ = marked_fetch  # type: ignore[method-assign,assignment]
    return clock
