"""Roles are found, not declared: ranks that recorded the same program have the same one. Pure.

Paper section 4.3. Equal signature of the tracked state and equal trace of the steady step make a
role: in a pipeline first, middle and last stage, in data parallelism one. The roles of a slot's
ranks, in order, are its kind. A standby that has warmed one slot of each kind can take any slot;
the first slot of a kind stands for it.
"""

from trainmover.controller.state import Job
from trainmover.ids import Rank, Slot


def roles(job: Job) -> dict[Rank, int]:
    """Rank -> role, numbered from 0 by their first ranks; {} until every rank has recorded."""
    if not job.all_recorded:
        return {}
    numbers: dict[tuple[str, str], int] = {}
    return {
        rank: numbers.setdefault((fact.signature, fact.trace), len(numbers))
        for rank, fact in sorted(job.recorded.items())
    }


def kinds(job: Job) -> dict[Slot, list[Slot]]:
    """First slot of a kind -> all slots of that kind; {} until every rank has recorded."""
    role_of = roles(job)
    if not role_of:
        return {}
    by_roles: dict[tuple[int, ...], list[Slot]] = {}
    for slot in map(Slot, range(job.spec.machines)):
        by_roles.setdefault(tuple(role_of[rank] for rank in job.spec.ranks(slot)), []).append(slot)
    return {slots[0]: slots for slots in by_roles.values()}


def representatives(job: Job) -> dict[Slot, Slot]:
    """Slot -> the first slot of its kind; {} until every rank has recorded."""
    return {slot: first for first, slots in kinds(job).items() for slot in slots}
