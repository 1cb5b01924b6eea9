# SPDX-License-Identifier: Apache-2.0
"""A machine that is lost again and again is not taken back at once. Pure.

The first loss may happen to any. From the second within an hour on it stays out for a while after
each, and each time twice as long.
"""

from collections.abc import Iterable

from trainmover.controller.state import Job, Machine
from trainmover.controller.values import replace
from trainmover.ids import MachineId

HOUR_US = 3600 * 1_000_000
FIRST_US = 30 * 1_000_000
LONGEST_US = HOUR_US


def losses_noted(job: Job, machines: Iterable[Machine], at_us: int) -> Job:
    """These have been lost, or were given up."""
    now = {
        (machine.id, machine.host): (*_lately(job, machine.id, machine.host, at_us), at_us)
        for machine in machines
    }
    return replace(job, losses={**job.losses, **now})


def quarantine_s(job: Job, machine: MachineId, host: str, now_us: int) -> float:
    """For how long a machine of this name on this host is not to be taken in; 0: it may join."""
    return max(0.0, (_until_us(job, machine, host, now_us) - now_us) / 1e6)


def quarantined(job: Job, now_us: int) -> dict[MachineId, float]:
    """Machines that are kept out, and for how many seconds yet."""
    left = {name: quarantine_s(job, name, host, now_us) for name, host in job.losses}
    return {name: left_s for name, left_s in left.items() if left_s and name not in job.machines}


def _until_us(job: Job, machine: MachineId, host: str, now_us: int) -> int:
    losses = _lately(job, machine, host, now_us)
    if len(losses) < 2:
        return 0
    return losses[-1] + min(LONGEST_US, FIRST_US << len(losses) - 2)


def _lately(job: Job, machine: MachineId, host: str, now_us: int) -> tuple[int, ...]:
    losses = job.losses.get((machine, host), ())
    return tuple(at_us for at_us in losses if now_us - at_us < HOUR_US)
