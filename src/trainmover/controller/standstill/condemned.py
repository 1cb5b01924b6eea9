# SPDX-License-Identifier: Apache-2.0
"""Workers that are to end because their rank keeps the others waiting. Pure."""

from collections.abc import Set

from trainmover.controller.standstill.stuck import Condemned
from trainmover.controller.state import Job
from trainmover.controller.values import replace
from trainmover.ids import MachineId
from trainmover.protocol.messages import Stack


def condemned_of(job: Job, machine: MachineId, pid: int) -> Condemned | None:
    """What this process is to end for, if it is."""
    one = job.hanging.condemned.get(machine)
    return one if one is not None and one.pid == pid else None


def with_condemned(job: Job, machine: MachineId, one: Condemned) -> Job:
    """The job with one more, or one that more is known of."""
    condemned = {**job.hanging.condemned, machine: one}
    return replace(job, hanging=replace(job.hanging, condemned=condemned))


def stack_told(job: Job, machine: MachineId, fact: Stack) -> Job:
    """Where the threads of a worker stood that is to end."""
    one = condemned_of(job, machine, fact.pid)
    return job if one is None else with_condemned(job, machine, replace(one, stack=fact.text))


def without_processes(job: Job, machines: Set[MachineId]) -> Job:
    """Nothing that was known of the processes of these machines is true any more."""
    hanging = job.hanging
    condemned = {name: one for name, one in hanging.condemned.items() if name not in machines}
    disturbed = {key: one for key, one in hanging.disturbed.items() if key[0] not in machines}
    nproc, seats = job.spec.nproc, job.seats
    stands = {r: one for r, one in hanging.stands.items() if seats[r // nproc] not in machines}
    hanging = replace(hanging, condemned=condemned, disturbed=disturbed, stands=stands)
    return replace(job, hanging=hanging)
