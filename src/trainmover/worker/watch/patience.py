# SPDX-License-Identifier: Apache-2.0
"""A shadow run that gets nowhere is given up: it waits for what never comes, or runs in circles.

Standing still: nothing served, no step begun, no module loaded, and next to no processor time used
by the process and its children. A long download or compilation is none of that. A run that waits
for another worker of its machine is left to that one's patience, unless they wait for each other.

Running in circles: nothing of that happens either, but the processor is busy. How long a script may
be at work on something is known from the runs before it on this machine; the first one is not
judged. On the way to where the rank stood, loops and steps that are passed over are what counts;
the measure is the run's own time until it parked.
"""

import ctypes
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType

import psutil  # type: ignore[import-untyped]

from trainmover.comm import groups
from trainmover.lifeline import descendants
from trainmover.worker.join.joiner import Joiner
from trainmover.worker.program import place_of
from trainmover.worker.standing import Unwind

STILL_S = 300.0
CIRCLES_S = 60.0
TIMES = 10
POLL_S = 5.0
UNWIND_S = 10.0
"""For a run that is given up to end; its process ends then."""
_FOR_OTHERS = 12.0
_BUSY = 0.01
"""Of one processor: who uses less only polls."""
_own_s = time.process_time
"""Used by this process's threads."""


class Patience:
    """Context of a shadow run. Calls `tell` with a reason once it gives up, and unwinds the run as
    soon as that executes Python again; if it does not, the process ends.
    """

    def __init__(self, joiner: Joiner, tell: Callable[[str], None]) -> None:
        self._joiner = joiner
        self._tell = tell
        self._main = threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tm-patience", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._over.set()
        self._joiner.shadow.stands.set()
        self._thread.join()

    def _watch(self) -> None:
        joiner = self._joiner
        last, work = self._progress(), _Work()
        looks = still = 0  # A process that was itself not let run has neither worked nor waited.
        while not self._over.wait(POLL_S):
            if not joiner.is_shadow:
                return
            progress = self._progress()
            if progress != last or self._waits():
                last, looks, still, work = progress, 0, 0, _Work()
                continue
            looks, still = looks + 1, still + 1
            still_s = still * POLL_S
            if looks * POLL_S > self._circles_s():
                self._give_up(f"has got nowhere for {looks * POLL_S:.0f} s", "it runs in circles")
                return
            if work.is_more_than(_BUSY * max(still_s, STILL_S)):
                still, work = 0, _Work()
            elif still_s > STILL_S * (_FOR_OTHERS if joiner.shadow.waits_for_others else 1):
                why = "it waits for something that is not there"
                self._give_up(f"has stood still for {still_s:.0f} s", why)
                return

    def _progress(self) -> tuple[int, ...]:
        member, shadow, way = self._joiner.member, self._joiner.shadow, self._joiner.takeover.way
        return (
            shadow.steps,
            shadow.replayer.served,
            len(sys.modules),
            member.calls,
            member.loops.fetches,
            way.reached if way is not None else 0,
        )

    def _waits(self) -> bool:
        """Whether it has come to where others come to it, or the script has said it takes long."""
        joiner = self._joiner
        stands = joiner.shadow.stands.is_set() and joiner.takeover.journey is None
        return bool(joiner.declared) or stands

    def _circles_s(self) -> float:
        """How long it may be at work on one thing."""
        shadow = self._joiner.shadow
        if self._joiner.takeover.journey is not None:
            return max(STILL_S, TIMES * shadow.run_ms / 1000.0)
        if not shadow.known_ms or shadow.waits_for_others:
            return math.inf
        return max(CIRCLES_S, TIMES * shadow.known_ms / 1000.0)

    def _give_up(self, how: str, why: str) -> None:
        frame = sys._current_frames().get(self._main)
        where = place_of(traceback.extract_stack(frame)) if frame is not None else ""
        self._joiner.shadow.given_up = True
        self._tell(f"in the sandbox the script {how}{f' at {where}' if where else ''}: {why}")
        unwind = ctypes.py_object(Unwind)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._main), unwind)
        groups.desert("it was given up")  # It may wait for another worker.
        if not self._over.wait(UNWIND_S):
            os._exit(1)


class _Work:
    """Processor time that this process and its children have used since. Who has children is a
    look at every process of the machine: not taken while this one is busy itself, so theirs counts
    from the first look that needs it.
    """

    def __init__(self) -> None:
        self._own_s = _own_s()
        self._children_s: float | None = None

    def is_more_than(self, seconds: float) -> bool:
        own_s = _own_s() - self._own_s
        if own_s > seconds:
            return True
        children_s = _children_s()
        if self._children_s is None:
            self._children_s = children_s
        return own_s + children_s - self._children_s > seconds


def _children_s() -> float:
    """Used by its children, and theirs: those that live, and those that have ended."""
    own = os.times()
    total = own.children_user + own.children_system
    for child in descendants():
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return float(total)
