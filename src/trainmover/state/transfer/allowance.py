# SPDX-License-Identifier: Apache-2.0
"""How fast a machine may send state: a token bucket. Time comes in as values; `Pacer` waits."""

import threading
import time
from dataclasses import dataclass, replace

BURST_S = 0.01


@dataclass(frozen=True)
class Allowance:
    """A bucket that fills with `bytes_s` a second, up to what it gives in `BURST_S`.

    left    bytes that may be sent at `at_s`; negative while what was sent is paid back
    """

    bytes_s: float
    left: float = 0.0
    at_s: float = 0.0

    def take(self, count: int, now_s: float) -> tuple["Allowance", float]:
        """The bucket after `count` bytes, and the seconds to wait before they are sent.

        >>> bucket, wait_s = Allowance(bytes_s=1000.0).take(500, now_s=7.0)
        >>> wait_s
        0.49
        >>> bucket.take(100, now_s=7.49)[1]
        0.1
        """
        full = self.bytes_s * BURST_S
        left = min(full, self.left + (now_s - self.at_s) * self.bytes_s) - count
        return replace(self, left=left, at_s=now_s), max(0.0, -left / self.bytes_s)


class Pacer:
    """Makes all threads of a server together keep to an allowance.

    bytes_s: 0: as fast as it goes
    """

    def __init__(self, bytes_s: float) -> None:
        self._paces = bytes_s > 0
        self._lock = threading.Lock()
        self._allowance = Allowance(bytes_s)

    def wait(self, count: int) -> None:
        """Until `count` bytes may be sent."""
        if not self._paces:
            return
        with self._lock:
            self._allowance, wait_s = self._allowance.take(count, time.monotonic())
        if wait_s > 0:
            time.sleep(wait_s)
