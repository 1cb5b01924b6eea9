# SPDX-License-Identifier: Apache-2.0
"""How long a rank may stand at one place before it is worth a word: from its own steps. Pure.

Whatever moves a rank, it moves at least once a step, so a stand that is longer than any step of a
week would be is none of training. How long that is the longest twentieth of its steps tells: how
fast they become rarer the longer they are (Hill's estimate of a tail). For even steps that is
little above the longest, for uneven ones many times. Where an estimate says more than steps have
shown it counts up to a limit; few steps prove little, so at first a multiple of the typical one is
allowed; and on a busy host half a second is nothing.
"""

import math
from collections import deque

WEEK_S = 7 * 24 * 3600.0
FLOOR_S = 0.6
BEFORE_S = 60.0
"""While too few steps are known."""
STEPS_MIN = 32
STEPS_KEPT = 1024
TAIL = 20
"""One in so many steps belongs to it."""
TAIL_MIN = 4
LONGER_AGAIN = 1.5
LONGER_AT_MOST = 8.0
TIMES_TYPICAL = 2.0
TIMES_AT_FIRST = 40.0
MORE_STEPS = 1.05
"""The deadline is computed anew after so many times as many steps, or a step longer than all."""


class Deadline:
    """Learns from the undisturbed steps of one rank.

    false_alarms  so many a week are put up with; more make it quicker

    >>> steady = Deadline(false_alarms=1.0)
    >>> for _ in range(1000):
    ...     steady.learn(0.5)
    >>> round(steady.seconds, 1)
    1.6
    """

    def __init__(self, false_alarms: float) -> None:
        self._false_alarms = false_alarms
        self._logs: deque[float] = deque(maxlen=STEPS_KEPT)
        self._longest = -math.inf
        self._known = 0
        self._due = STEPS_MIN
        self._seconds = BEFORE_S

    @property
    def seconds(self) -> float:
        """The deadline in force."""
        return self._seconds

    def learn(self, *steps_s: float) -> None:
        """Undisturbed steps, in seconds, each from commit to commit."""
        logs = [math.log(max(step_s, 1e-6)) for step_s in steps_s]
        self._logs.extend(logs)
        self._known += len(logs)
        longer = max(logs, default=-math.inf) > self._longest
        if self._known >= self._due or (longer and self._known > STEPS_MIN):
            self._due = math.ceil(min(self._known * MORE_STEPS, self._known + STEPS_KEPT / TAIL))
            self._seconds = self._from_steps()

    def _from_steps(self) -> float:
        logs = sorted(self._logs)
        self._longest = logs[-1]
        typical_s = math.exp(logs[len(logs) // 2])
        rare_s = math.exp(min(self._rare(logs, typical_s), logs[-1] + math.log(LONGER_AT_MOST)))
        first_s = typical_s * (TIMES_TYPICAL + TIMES_AT_FIRST / math.sqrt(self._known))
        return max(FLOOR_S, rare_s, first_s, LONGER_AGAIN * math.exp(logs[-1]))

    def _rare(self, logs: list[float], typical_s: float) -> float:
        """What a step exceeds `false_alarms` times a week; logarithms, ascending."""
        tail = max(TAIL_MIN, len(logs) // TAIL)
        begins = logs[-tail - 1]
        excess = math.fsum(log - begins for log in logs[-tail:]) / tail
        chance = min(1.0, self._false_alarms * typical_s / WEEK_S)
        return begins + excess * math.log(tail / (len(logs) * chance))
