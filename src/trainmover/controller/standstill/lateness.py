# SPDX-License-Identifier: Apache-2.0
"""Ranks that do not come to their boundary while all others wait there. Pure.

Who stands still says so, and is found (`hanging`). A rank whose script goes round does not: drained
collectives return at once, so a loop until all ranks agree makes thousands of them. It has so long
as it has said that it may take (`Position.patience_ms`).

So it is with a machine that has just left its ranks and is to take others: before its processes
have come out of the script they cannot begin anew, and nobody else is bound in their place.
"""

from trainmover.controller.change.seats import survivors
from trainmover.controller.standstill.contact import waited_us
from trainmover.controller.state import Change, Job, MachineState, Stage
from trainmover.ids import MachineId, Rank, Slot

LOOK_US = 200_000
LEAVES_US = 20_000_000
"""A process that has not left its script for so long, and is waited for as a joiner, never does."""


def late_ranks(job: Job, at_us: int) -> list[Rank]:
    """Those that have taken longer than they said."""
    change = job.change
    if change is None or not _waits(change):
        return []
    most_ms = (at_us - change.since_us) // 1000
    patience = {rank: said.patience_ms for rank, said in change.positions.items()}
    if not any(0 < ms <= most_ms for ms in patience.values()):
        return []  # The usual case, met at every event.

    def is_late(rank: Rank) -> bool:
        waited_ms = (
            waited_us(job, job.seats[rank // job.spec.nproc], change.since_us, at_us) // 1000
        )
        return 0 < patience.get(rank, 0) <= waited_ms

    late = (rank for rank in _awaited(job, change) if is_late(rank))
    return [rank for rank in late if _has_process(job, rank)]


def late_leavers(job: Job, at_us: int) -> list[tuple[MachineId, int, Rank]]:
    """Processes that are to join, by machine and place there, and do not leave what they were."""
    change = job.change
    if change is None or not _waits(change) or at_us - change.since_us < LEAVES_US:
        return []
    return [
        (name, local, rank)
        for slot, name in sorted(change.joiners.items())
        if job.machines[name].state is MachineState.LEAVING and job.seats[slot] != name
        if waited_us(job, name, change.since_us, at_us) >= LEAVES_US
        for local, rank in enumerate(job.spec.ranks(slot))
        if local not in job.machines[name].said and local in job.machines[name].pids
    ]


def _has_process(job: Job, rank: Rank) -> bool:
    """Whether there is a process of it to end."""
    slot, local = divmod(rank, job.spec.nproc)
    machine = job.machines.get(job.seats[slot])
    runs = machine is not None and machine.state in (MachineState.ACTIVE, MachineState.LEAVING)
    return machine is not None and runs and local in machine.pids


def _waits(change: Change) -> bool:
    """All come to their boundary, or leave their script."""
    return change.stage is Stage.BOUNDARY and change.since_us > 0


def _awaited(job: Job, change: Change) -> list[Rank]:
    """Survivors that are not at the boundary; where all go back, those that have not unwound."""
    if not change.back:
        return [rank for rank in survivors(job, change) if rank not in change.at_boundary]
    return [
        rank
        for slot, name in enumerate(job.seats)
        if name in job.machines and job.machines[name].state is MachineState.LEAVING
        for local, rank in enumerate(job.spec.ranks(Slot(slot)))
        if local not in job.machines[name].said
    ]


def looks_due(job: Job, last_us: int, now_us: int) -> bool:
    """Whether time alone may tell more: of processes that are stopped or are to end, and where all
    ranks stand."""
    hanging = job.hanging
    all_stand = len(hanging.stands) >= job.spec.world_size
    held_up = hanging.stands and holds_all(job)
    waits = hanging.disturbed or hanging.condemned or all_stand or held_up
    return bool(waits) and now_us - last_us >= LOOK_US


def holds_all(job: Job) -> bool:
    """Whether a change of members is so far that all have to wait for each."""
    return job.change is not None and job.change.stage not in (Stage.BIND, Stage.PREPARE)
