# SPDX-License-Identifier: Apache-2.0
"""What a run of the script left behind and only it could have ended: processes, threads, files.

Processes are ended. Threads and open files are out of reach; they are told.
"""

import contextlib
import os
import stat
import threading
import time
from collections.abc import Iterable

import psutil  # type: ignore[import-untyped]

from trainmover.lifeline import descendants
from trainmover.sandbox.process.modules import top_of
from trainmover.torch_internals.compiling import WORKER

GRACE_S = 2.0
"""For processes and threads that end by themselves once the run's objects are gone: loaders'
workers, pools."""

_WARM_COMMANDS = (
    WORKER,
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
)
_WARM_THREADS = frozenset({"torch", "trainmover", "concurrent"})
_SHOWN_MAX = 60


class Remains:
    """Taken before a run: what is found later and was not there then is the run's."""

    def __init__(self) -> None:
        self._processes = {(child.pid, child.create_time()) for child in descendants()}
        self._threads = set(threading.enumerate())
        self._files = {path for _, path in _open_for_writing()}

    def put_back(self) -> list[str]:
        """End processes; give what was found, in words."""
        return [*self._end_processes(), *self._leave_threads(), *self._open_files()]

    def _end_processes(self) -> list[str]:
        left = [c for c in descendants() if (c.pid, c.create_time()) not in self._processes]
        left = [child for child in left if not _stays(child)]
        _, left = psutil.wait_procs(left, timeout=GRACE_S if left else 0)
        told = [
            f"it left process {child.pid} ({_command(child)}), which was ended" for child in left
        ]
        for end in (psutil.Process.terminate, psutil.Process.kill):
            for child in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    end(child)
            _, left = psutil.wait_procs(left, timeout=GRACE_S / 2 if left else 0)
        return told

    def _leave_threads(self) -> list[str]:
        ours = [t for t in threading.enumerate() if t not in self._threads and _is_of_run(t)]
        until = time.monotonic() + GRACE_S
        for thread in ours:
            thread.join(max(0.0, until - time.monotonic()))
        left = [thread for thread in ours if thread.is_alive()]
        for thread in left:
            thread._daemonic = True  # type: ignore[attr-defined]  # The process will not wait for it.
        return [f"it left thread {thread.name!r}, which still runs" for thread in left]

    def opened(self) -> list[int]:
        """Descriptors of files that the run has opened to write to them."""
        return [descriptor for descriptor, _ in self._opened()]

    def _opened(self) -> Iterable[tuple[int, str]]:
        return (one for one in _open_for_writing() if one[1] not in self._files)

    def _open_files(self) -> list[str]:
        left = sorted({path for _, path in self._opened()})
        return [f"it left {path} open for writing" for path in left]


def _stays(child: psutil.Process) -> bool:
    """Whether it is gone already, or serves this process and not one run."""
    try:
        command = child.cmdline()
        return child.status() == psutil.STATUS_ZOMBIE or any(
            warm in argument for warm in _WARM_COMMANDS for argument in command
        )
    except psutil.NoSuchProcess:
        return True


def _command(child: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        text = " ".join(child.cmdline())
        return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
    return "?"


def _is_of_run(thread: threading.Thread) -> bool:
    """Threads of libraries that keep a process warm are none of the script's doing."""
    target = getattr(thread, "_target", None)
    module = getattr(target, "__module__", None) or type(thread).__module__
    return thread is not threading.current_thread() and top_of(module) not in _WARM_THREADS


def _open_for_writing() -> Iterable[tuple[int, str]]:
    """Descriptors and paths of regular files."""
    for name in os.listdir("/proc/self/fd"):
        try:
            mode = os.fstat(int(name)).st_mode
            path = os.readlink(f"/proc/self/fd/{name}")
            with open(f"/proc/self/fdinfo/{name}") as info:
                flags = next(int(line.split()[1], 8) for line in info if line.startswith("flags"))
        except OSError:  # Closed in the meantime.
            continue
        on_disk = stat.S_ISREG(mode) and not path.endswith("(deleted)") and path[:5] != "/dev/"
        if on_disk and flags & os.O_ACCMODE != os.O_RDONLY:
            yield int(name), path
