# SPDX-License-Identifier: Apache-2.0
"""Seats: who has which, who may have none, and who takes part in a change. Pure."""

from collections.abc import Iterable
from typing import Any

from trainmover.controller.state import Change, Cordon, Job, Kind, Machine, Stage
from trainmover.controller.state import slots as seated
from trainmover.controller.values import kept_for, replace
from trainmover.ids import MachineId, Rank, Slot, Step


def with_machine(job: Job, machine: MachineId, **changes: Any) -> Job:
    """Return the job with one machine changed."""
    changed = replace(job.machines[machine], **changes)
    return replace(job, machines=job.machines.having(machine, changed))


def in_new_run(job: Job, machine: MachineId, **changes: Any) -> Job:
    """Return the job with one machine changed that begins a run in the sandbox, the newest of
    all."""
    job = replace(job, runs=job.runs + 1)
    return with_machine(job, machine, run=job.runs, outdated=False, **changes)


def with_cordon(job: Job, machine: MachineId, cordon: Cordon) -> Job:
    """Return the job with one machine that takes no ranks; another cordon than it had, if it had
    one."""
    return replace(job, cordoned={**job.cordoned, machine: cordon})


def cordoned_by_people(job: Job, machine: MachineId, reason: str, at_us: int) -> Job:
    """Return the job with one machine that somebody wants to take no ranks. That it will be taken
    away, or seems about to fail, is as true as before: its ranks are still to go."""
    known = job.cordoned.get(machine, Cordon(at_us))
    return with_cordon(
        job, machine, replace(known, at_us=at_us, reason=reason, health=False, spared=False)
    )


def without_cordon(job: Job, machine: MachineId) -> Job:
    """Return the job with one machine that may take ranks."""
    left = {name: one for name, one in job.cordoned.items() if name != machine}
    return replace(job, cordoned=left)


def without_machines(job: Job, machines: Iterable[MachineId]) -> Job:
    """Return the job with some machines gone; their seats, if they had any, become vacant."""
    gone = set(machines)
    change = job.change
    if change is not None and gone & set(change.hedges.values()):
        hedges = {slot: name for slot, name in change.hedges.items() if name not in gone}
        job = replace(job, change=replace(change, hedges=hedges))
    if gone & (job.away | job.back_us.keys()):
        back_us = {name: at for name, at in job.back_us.items() if name not in gone}
        job = replace(job, away=job.away - gone, back_us=back_us)
    return replace(job, machines=job.machines.without(gone))


@kept_for("machines", "seats")
def spare(job: Job) -> tuple[Machine, ...]:
    """Machines without ranks, in natural order."""
    names = job.machines.keys() - seated(job).keys()
    return tuple(sorted((job.machines[name] for name in names), key=lambda machine: machine.place))


def at_hand(job: Job) -> list[Machine]:
    """Machines without ranks that may take some."""
    return [machine for machine in spare(job) if machine.id not in job.cordoned]


def other_torch(job: Job, machine: Machine) -> str:
    """Return both versions, if `machine` has another torch than the job's ranks: its numbers would
    differ, or its collectives; "" if it has not, or that is not known yet."""
    if "" in (machine.torch, job.torch) or machine.torch == job.torch:
        return ""
    return f"it runs torch {machine.torch}, the job's ranks run torch {job.torch}"


def seats_after(job: Job, change: Change) -> tuple[MachineId, ...]:
    """Slot -> machine once `change` is through."""
    return tuple(change.joiners.get(Slot(slot), machine) for slot, machine in enumerate(job.seats))


def holders(change: Change, rank: Rank, step: Step, vaults: dict[MachineId, str]) -> list[str]:
    """Vaults that hold the record with which `rank` runs `step`."""
    return [
        vaults[machine]
        for machine, held in change.vaults.items()
        if machine in vaults and step in held.get(rank, [])
    ]


def address_of(job: Job, seats: tuple[MachineId, ...], rank: Rank) -> str:
    """Return where the worker of `rank` serves state."""
    slot, local_rank = divmod(rank, job.spec.nproc)
    return job.machines[seats[slot]].workers[local_rank]


def goes_back(change: Change | None) -> bool:
    """Tell whether what ranks have done since the newest cut does not count any more."""
    return change is not None and change.back


def survivors(job: Job, change: Change) -> list[Rank]:
    """Ranks that stay through `change`. One that has finished and left has nothing to say."""
    if len(change.joiners) == len(job.seats):
        return []
    return [
        rank
        for slot in range(len(job.seats))
        if slot not in change.joiners
        and slot not in change.missing
        and job.seats[slot] in job.machines
        for rank in job.spec.ranks(Slot(slot))
        if rank not in job.exited
    ]


def too_few(job: Job, change: Change, said: int) -> bool:
    """Tell whether fewer have said something than there are survivors. It need not tell so of every
    number, but is quick: of most facts of a large job it is all that has to be known.

    Who neither has a new machine nor speaks has finished: a slot is vacant, or all its ranks have.
    """
    slots = len(job.seats) - len(change.joiners) - len(change.missing)
    return said < slots * job.spec.nproc - len(job.finished)


def joining(job: Job, change: Change) -> list[Rank]:
    """Ranks that get a new machine."""
    return [rank for slot in sorted(change.joiners) for rank in job.spec.ranks(slot)]


def parked(job: Job, change: Change) -> bool:
    """Tell whether every joiner's workers have run the script and wait. The last ones are asked
    first: while all go back it is asked at every event, and the first ones have mostly said so."""
    return all(is_parked(job, name) for name in reversed(change.joiners.values()))


def is_parked(job: Job, name: MachineId) -> bool:
    """Return whether the machine is there and all its workers have run the script and wait."""
    machine = job.machines.get(name)
    return machine is not None and len(machine.said) == job.spec.nproc


def before_switch(change: Change | None) -> bool:
    """Tell whether `change` is a move that can still be cancelled without the job noticing."""
    return change is not None and change.kind is Kind.MOVE and change.stage is not Stage.SWITCH


def drains(change: Change | None) -> bool:
    """Tell whether all ranks have left their epoch, and wait for a switchover."""
    return change is not None and change.kind is Kind.RECOVERY and change.stage is not Stage.SWITCH
