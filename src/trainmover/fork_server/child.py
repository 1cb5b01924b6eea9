# SPDX-License-Identifier: Apache-2.0
"""A process that a fork server has forked for us: our child, as if we had forked it ourselves."""

import os
import signal


class Child:
    """What callers need of a `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit status, minus the signal's number if one ended it; None while it lives."""
        return self._collect(os.WNOHANG)

    def wait(self) -> int:
        code = self._collect(0)
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _collect(self, options: int) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # Collected by whoever killed all that was left.
                pid, status = self.pid, signal.SIGKILL
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code
