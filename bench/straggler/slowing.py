# SPDX-License-Identifier: Apache-2.0
"""A process that is stopped and goes on, again and again: `python -m bench.straggler.slowing PID`.

In a process of its own, so that the job's controller, which shares the bench's, is not in its way.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

from trainmover.lifeline import die_with

STOPS_S, RUNS_S = 0.020, 0.095
"""A fifth more time for the same work; what comes of it is measured."""


class Slowing:
    """While it lives, the process `pid` is slow."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        command = [sys.executable, "-m", "bench.straggler.slowing", str(pid)]
        self._child = subprocess.Popen(command, preexec_fn=partial(die_with, os.getpid()))

    def end(self) -> None:
        self._child.kill()
        self._child.wait()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)


def main() -> None:
    pid = int(sys.argv[1])
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPS_S)
            os.kill(pid, signal.SIGCONT)
            time.sleep(RUNS_S)


if __name__ == "__main__":
    main()
