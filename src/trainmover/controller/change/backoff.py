# SPDX-License-Identifier: Apache-2.0
"""Moves that nobody asked for are tried again later each time they fail. Pure.

A machine that will be taken away is moved as soon as that can be. If phase 1 fails there each time,
trying at once would fill the journal with incidents and leave no room for anything else.
"""

from collections.abc import Iterable

from trainmover.controller.state import Job
from trainmover.controller.values import replace
from trainmover.ids import MachineId

FREE = 3
"""Tries that follow at once: another standby may do."""
FIRST_US = 1_000_000
DOUBLED_MAX = 6
"""So often the wait doubles: to about a minute."""


def move_failed(job: Job, machines: Iterable[MachineId], at_us: int) -> Job:
    """Record that a move of these machines has come to nothing."""
    failed = {name: job.failed_moves.get(name, (0, 0))[0] + 1 for name in machines}
    times = {name: (count, _until_us(count, at_us)) for name, count in failed.items()}
    return replace(job, failed_moves={**job.failed_moves, **times})


def _until_us(count: int, at_us: int) -> int:
    return 0 if count < FREE else at_us + (FIRST_US << min(count - FREE, DOUBLED_MAX))


def move_went_well(job: Job, machines: Iterable[MachineId]) -> Job:
    """Forget what failed before: the ranks of these machines are elsewhere."""
    gone = job.failed_moves.keys() & set(machines)
    if not gone:
        return job
    left = {name: its for name, its in job.failed_moves.items() if name not in gone}
    return replace(job, failed_moves=left)


def retry_us(job: Job, machine: MachineId) -> int:
    """Return when the machine may be moved again; 0: at any time."""
    return job.failed_moves.get(machine, (0, 0))[1]


def retry_due(job: Job, now_us: int) -> bool:
    """Tell whether a machine may be moved again: the host is to say so."""
    return any(0 < until_us <= now_us for _, until_us in job.failed_moves.values())


def let_retry(job: Job, now_us: int) -> Job:
    """Time has passed: let machines be moved again whose wait is over."""
    if not retry_due(job, now_us):
        return job
    waits = job.failed_moves.items()
    left = {name: (count, 0 if us <= now_us else us) for name, (count, us) in waits}
    return replace(job, failed_moves=left)
