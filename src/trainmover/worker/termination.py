# SPDX-License-Identifier: Apache-2.0
"""SIGTERM to a process of a run, where its script has no handler of its own.

Slurm and systemd send it to every process of a run at once, in any order. The run then writes one
more checkpoint, for which it needs its ranks and their loader processes. So a process outlives the
signal: for a moment if it alone got it, and until its agent ends it if the run is being stopped.
"""

import ctypes
import os
import signal
import threading
import time
from contextlib import suppress
from types import FrameType

from trainmover.protocol.deadlines import STOP_S, STOP_SEEN_S
from trainmover.torch_internals import loaders

NUMBER = signal.SIGTERM


class Termination:
    """The handler of SIGTERM: delays the default action, which ends the process.

    It equals SIG_DFL: a library that sets its own handler only where there is none finds none.
    Signals are read from the wakeup descriptor, by a thread, since the main thread may be anywhere
    in native code.

    alone_s  how long the process outlives a signal if nobody says that the run is being stopped
    """

    def __init__(self, alone_s: float = STOP_SEEN_S) -> None:
        self._alone_s = alone_s
        self._changed = threading.Condition()
        self._signals = 0
        self._is_ordered = False
        self._stopping_at: float | None = None
        self._read_end, self._wakeup = os.pipe()
        os.set_blocking(self._wakeup, False)
        self._listens = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Called by Python in the main thread. The thread has heard of the signal already, unless
        the script uses the wakeup descriptor itself."""
        if not self._is_awake():
            self._signalled()

    def __eq__(self, other: object) -> bool:
        return other is self or other is signal.SIG_DFL

    __hash__ = object.__hash__

    def watch(self) -> None:
        """Take the place of the default action; called in the main thread. A handler that is there
        stays."""
        if signal.getsignal(NUMBER) is signal.SIG_DFL:
            signal.signal(NUMBER, self)
        if not self._listens:
            self._listens = True
            signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
            os.register_at_fork(after_in_child=self._forked)
            threading.Thread(target=self._listen, name="tm-signals", daemon=True).start()

    def stop_seen(self) -> None:
        """Note that the run is being stopped: its agent ends this process when it is time."""
        with self._changed:
            self._stopping_at = time.monotonic()

    def end_ordered(self) -> None:
        """Note that the agent ends this process: its SIGTERM is not outlived."""
        with self._changed:
            self._is_ordered = True
            self._changed.notify_all()

    def _is_installed(self) -> bool:
        installed: object = signal.getsignal(NUMBER)
        return installed is self

    def _is_awake(self) -> bool:
        """Whether signals still come by the wakeup descriptor."""
        used = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        if used != self._wakeup:
            signal.set_wakeup_fd(used)
        return used == self._wakeup

    def _listen(self) -> None:
        while numbers := os.read(self._read_end, 64):
            for _ in range(numbers.count(NUMBER)):
                self._signalled()

    def _signalled(self) -> None:
        if not self._is_installed():  # The script's own handler is at work.
            return
        with self._changed:
            self._signals += 1
            self._changed.notify_all()
            if self._signals == 1:
                threading.Thread(target=self._outlive, name="tm-sigterm", daemon=True).start()

    def _outlive(self) -> None:
        """Wait for as long as the process may live, then end it as the signal would have."""
        begun = time.monotonic()
        with self._changed:
            self._changed.wait_for(self._ends_now, self._alone_s)
            if self._stopping_at is not None and self._stopping_at >= begun - self._alone_s:
                self._changed.wait_for(self._ends_now, STOP_S)
        ctypes.CDLL(None).signal(int(NUMBER), None)  # Python's own call is the main thread's alone.
        os.kill(os.getpid(), NUMBER)

    def _ends_now(self) -> bool:
        return self._is_ordered or self._signals > 1

    def _forked(self) -> None:
        """A child of the script's is no process of the run: it has the default action."""
        with suppress(ValueError):  # Forked by an interpreter that has no signals.
            if self._is_awake():
                signal.set_wakeup_fd(-1)
            if self._is_installed():
                signal.signal(NUMBER, signal.SIG_DFL)


def outlive_in_loaders() -> None:
    """Have the processes of torch's loaders outlive a first SIGTERM for as long as a stop takes."""
    loaders.call_in_processes(lambda: Termination(alone_s=STOP_S).watch())
