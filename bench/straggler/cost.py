# SPDX-License-Identifier: Apache-2.0
"""What a rank's own time costs in a step, by the clock of its thread: its clocks, the extension's
sums, and what is told of it. What the extension does lies where it waits anyway."""

import statistics
import time

from bench.result import Claim
from trainmover.comm.choice import waits_of
from trainmover.ids import Step
from trainmover.worker.step.own_time import OwnTime

STEPS, ROUNDS = 2000, 15
MOST_US = 20.0


def claim() -> Claim:
    """Measured now, in this process."""
    return Claim("own time, of the thread a step", cost_us(), "us", MOST_US)


def cost_us() -> float:
    """The median of some rounds."""
    own = OwnTime(waits_of("native"), list)
    return statistics.median(_round_us(own) for _ in range(ROUNDS))


def _round_us(own: OwnTime) -> float:
    begun = time.thread_time_ns()
    for step in range(STEPS):
        own.at_gate()
        own.passed()
        own.took(Step(step))
    return (time.thread_time_ns() - begun) / 1000 / STEPS
