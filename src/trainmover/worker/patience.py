"""A shadow run that stands still for long is given up: it waits for something that never comes.

Standing still: nothing served, no step begun, no module loaded, and next to no processor time used
by the process and its children. A long download or compilation is none of that. A run that waits
for another worker of its machine is left to that one's patience, unless they wait for each other.
"""

import ctypes
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType

import psutil  # type: ignore[import-untyped]

from trainmover.comm import groups
from trainmover.worker.joiner import Joiner
from trainmover.worker.program import place_of
from trainmover.worker.standing import Unwind

STILL_S = 300.0
POLL_S = 5.0
_FOR_OTHERS = 12.0
_BUSY = 0.01
"""Of one processor: who uses less only polls."""


class Patience:
    """Context of a shadow run. Calls `tell` with a reason once it gives up, and unwinds the run as
    soon as that executes Python again.
    """

    def __init__(self, joiner: Joiner, tell: Callable[[str], None]) -> None:
        self._joiner = joiner
        self._tell = tell
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="tm-patience", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._joiner.stands.set()
        self._thread.join()

    def _watch(self) -> None:
        last, since, used_s = self._progress(), time.monotonic(), _processor_s()
        while not self._joiner.stands.wait(POLL_S):
            progress, still_s = self._progress(), time.monotonic() - since
            if progress != last or _processor_s() - used_s > _BUSY * max(still_s, STILL_S):
                last, since, used_s = progress, time.monotonic(), _processor_s()
            elif still_s > STILL_S * (_FOR_OTHERS if self._joiner.waits_for_others else 1):
                self._give_up(still_s)
                return

    def _progress(self) -> tuple[int, int, int]:
        joiner = self._joiner
        return joiner.shadow_steps, joiner.replayer.served, len(sys.modules)

    def _give_up(self, still_s: float) -> None:
        frame = sys._current_frames().get(self._main)
        where = place_of(traceback.extract_stack(frame)) if frame is not None else ""
        self._joiner.given_up = True
        self._tell(
            f"in the sandbox the script has stood still for {still_s:.0f} s"
            f"{f' at {where}' if where else ''}: it waits for something that is not there"
        )
        unwind = ctypes.py_object(Unwind)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._main), unwind)
        groups.desert("it stood still")  # It may wait for another worker.


def _processor_s() -> float:
    """Used by this process, its children that live and those that have ended."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return float(total)
