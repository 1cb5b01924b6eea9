# SPDX-License-Identifier: Apache-2.0
"""What this machine's kernel and processes say that machines say before they fail.

The kernel's log is read at each beat as far as it has come, from now on: what it said before this
agent was there is no sign of anything to come. A log that cannot be read is no fault: containers
mostly cannot. One symptom is told at once, and then every ten seconds with how often it came.
"""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from trainmover.protocol.messages import Sign
from trainmover.symptoms import LINE_MAX, said_by_process, symptom_in

KERNEL_LOG = Path("/dev/kmsg")
TOLD_EVERY_S = 10.0
READ_BYTES = 16 * 1024
READS_MAX = 64
"""At a beat: a kernel that says more says the same again and again."""
MEMORY_INFO = Path("/proc/meminfo")


class Signs:
    """say: to the controller. now: seconds of a clock that only goes forward."""

    def __init__(
        self,
        kernel_log: Path | None,
        say: Callable[[Sign], object],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._now = now
        self._log = None if kernel_log is None else _opened(kernel_log)
        self._partial = b""
        self._untold: dict[str, tuple[int, str]] = {}
        self._told_s: dict[str, float] = {}

    def look(self) -> None:
        """To be called every beat."""
        for line in self._lines():
            symptom = symptom_in(line)
            if symptom is not None:
                self._note(symptom.name, line)
        self._tell()

    def printed(self, lines: bytes) -> None:
        """A process of this machine has printed whole lines as errors."""
        line = said_by_process(lines)
        symptom = symptom_in(line) if line else None
        if symptom is not None:
            self._note(symptom.name, line)

    def close(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _note(self, name: str, line: str) -> None:
        count, _ = self._untold.get(name, (0, ""))
        self._untold[name] = count + 1, line[:LINE_MAX]

    def _tell(self) -> None:
        now_s = self._now()
        for name, (count, line) in list(self._untold.items()):
            if now_s - self._told_s.get(name, -TOLD_EVERY_S) < TOLD_EVERY_S:
                continue
            del self._untold[name]
            self._told_s[name] = now_s
            self._say(Sign(symptom=name, line=line, count=count))

    def _lines(self) -> list[str]:
        """Those that are whole by now."""
        lines: list[str] = []
        for _ in range(READS_MAX):
            data = self._read()
            if not data:
                break
            *whole, self._partial = (self._partial + data).split(b"\n")
            lines += [line.decode(errors="replace") for line in whole]
            self._partial = self._partial[-READ_BYTES:]
        return lines

    def _read(self) -> bytes:
        if self._log is None:
            return b""
        try:
            return os.read(self._log, READ_BYTES)
        except BrokenPipeError:
            return b"\n"  # Older records were overwritten before they were read.
        except OSError:
            return b""  # Nothing new.


def _opened(path: Path) -> int | None:
    """At its end; None if it cannot be read."""
    try:
        log = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):  # A pipe has no end: nobody has read what is in it.
        os.lseek(log, 0, os.SEEK_END)
    return log


def memory() -> tuple[int, int]:
    """Bytes of this machine's memory that could be used, and that there are; 0, 0: not known."""
    try:
        text = MEMORY_INFO.read_text()
    except OSError:
        return 0, 0
    known = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        free, whole = (int(known[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
    except (KeyError, ValueError, IndexError):
        return 0, 0
    return 1024 * free, 1024 * whole
