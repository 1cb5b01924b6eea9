# SPDX-License-Identifier: Apache-2.0
"""Ties processes to each other, so that nothing outlives the job. Linux only."""

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    import psutil  # type: ignore[import-untyped]

STACK_SIGNAL = signal.SIGRTMAX - 7
"""A worker that gets it writes down where its threads stand."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_ROUNDS = 10
_REAP_S = 2.0
_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> None:
    """Be killed when process `parent`, which must be ours, ends. Ends now if it has already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def when_ended(
    loop: "asyncio.AbstractEventLoop", pid: int, act: Callable[[], None]
) -> Callable[[], None]:
    """Have `act` called once process `pid` has ended; it is not reaped by that. What comes back
    ends the watch, and may be called at any time. Raises ProcessLookupError if there is none."""
    process = os.pidfd_open(pid)

    def unwatch() -> None:
        nonlocal process
        if process >= 0:
            loop.remove_reader(process)
            os.close(process)
            process = -1

    def ended() -> None:
        unwatch()
        act()

    loop.add_reader(process, ended)
    return unwatch


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that we can find them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants() -> "list[psutil.Process]":
    """Of this process. To find them all others of the host are read too, so the kernel is asked
    first whether there is any child."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []
    import psutil  # 30 ms that workers, who only need `die_with`, do not spend

    family: list[psutil.Process] = psutil.Process().children(recursive=True)
    return family


def kill_descendants(*run_ids: str, spared: Collection[int] = ()) -> None:
    """SIGKILL and reap every descendant of ours that was started for one of the runs.

    spared  pids of those that are not meant
    """
    import psutil

    for _ in range(_KILL_ROUNDS):  # more than one: a child may be forked while we look
        left = [c for c in descendants() if c.pid not in spared and _started_for(c, run_ids)]
        if not left:
            return
        for child in left:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=1.0)


def reap(pids: Iterable[int]) -> None:
    """Collect dying and dead processes that became our children when their parent was killed."""
    deadline = time.monotonic() + _REAP_S
    for pid in pids:
        # Not our child: it was collected by its parent, as it should be.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
                time.sleep(0.002)


def end_quickly(status: int = 0) -> None:
    """End as Python ends, but take nothing down: C++ destructors (gloo's threads do not survive
    those), and whatever a fork server has imported, which would all be copied first."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    _let_be("torch.library")
    atexit._run_exitfuncs()
    flush_output()
    os._exit(status)


def flush_output() -> None:
    """As far as it can be written: a full disk or a closed terminal changes no exit status."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _let_be(module: str) -> None:
    """Run none of this module's finalizers: torch takes each of its operators off its lists, for a
    tenth of a second, and ends with all of them anyway."""
    registry = getattr(weakref.finalize, "_registry", {})  # Without it the end takes longer.
    for finalizer in list(registry):
        if (held := finalizer.peek()) and getattr(held[1], "__module__", "") == module:
            finalizer.detach()


def _started_for(process: "psutil.Process", run_ids: Collection[str]) -> bool:
    import psutil

    try:
        zombie = process.status() == psutil.STATUS_ZOMBIE
        return not zombie and process.environ().get("TRAINMOVER_RUN_ID") in run_ids
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")
