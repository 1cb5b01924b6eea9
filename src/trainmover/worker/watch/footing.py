# SPDX-License-Identifier: Apache-2.0
"""Whether the rank is inside a step, of which function, and how long its steps take.

Kept by the main thread, for two who look from outside: the watch (`watch.py`), and the agent, which
must know it also of a process that executes no Python. So one byte of it is in a file.
"""

import mmap
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

PULSE_BYTES = 16
OUTSIDE, QUICK, PATIENT = 0, 1, 2
"""The byte: outside of steps; inside one that is known not to take long; inside another."""
STEPS_KEPT = 64


class Pulse:
    """A file of 16 bytes, or none. Byte 0: see above; the last 8 count the looks of the watch.

    quick  functions whose steps are known not to take long: name -> QUICK
    """

    def __init__(self, path: str = "") -> None:
        self.bytes: bytearray | mmap.mmap = bytearray(PULSE_BYTES)
        self.quick: dict[str, int] = {}
        if path:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            os.ftruncate(file, PULSE_BYTES)
            self.bytes = mmap.mmap(file, PULSE_BYTES)
            os.close(file)

    def beat(self, count: int) -> None:
        self.bytes[8:] = count.to_bytes(8, "little")


class Footing:
    """Of one rank.

    function  whose step is under way, or was the last
    functions names of all so far, in order
    made      undisturbed steps so far
    """

    def __init__(self, pulse: Pulse) -> None:
        self.function = ""
        self.functions: dict[str, None] = {}
        self.made = 0
        self._pulse = pulse
        self._took: deque[tuple[str, int]] = deque(maxlen=STEPS_KEPT)
        self._begun_ns = 0

    def enter(self, function: Callable[..., Any]) -> None:
        """A step begins, or is begun again."""
        self.function = name = getattr(function, "__qualname__", "")
        self.functions[name.rpartition(".")[2] or "a function"] = None
        self._pulse.bytes[0] = self._pulse.quick.get(name, PATIENT)
        self._begun_ns = time.monotonic_ns()

    def leave(self) -> None:
        """It is over, however it ended."""
        self._pulse.bytes[0] = OUTSIDE

    def undisturbed(self) -> None:
        """It has committed, and nothing had held it up."""
        self._took.append((self.function, time.monotonic_ns() - self._begun_ns))
        self.made += 1

    def newest(self, count: int) -> list[tuple[str, float]]:
        """Function and seconds of the newest undisturbed steps, as many of them as are kept."""
        return [(name, ns / 1e9) for name, ns in list(self._took)[-count:]] if count > 0 else []
