"""Who keeps what for whom: buddies, sources of state, choice of a joiner. Pure."""

from collections.abc import Iterable
from typing import Any

from trainmover.controller.compare.roles import representatives
from trainmover.controller.state import Change, Job, Machine, MachineState
from trainmover.controller.values import kept_for, replace
from trainmover.ids import MachineId, Rank, Slot, Step

# A joiner that is warm costs least; one that still comes up is better than none. A cold one (its
# shadow run differed from the record) is never taken.
_PREFERENCE = (
    MachineState.WARM,
    MachineState.HOLDING,
    MachineState.WARMING,
    MachineState.IDLE,
    MachineState.LEAVING,
    MachineState.STARTING,
    MachineState.DOWN,
)


def with_machine(job: Job, machine: MachineId, **changes: Any) -> Job:
    """The job with one machine changed."""
    return replace(
        job, machines={**job.machines, machine: replace(job.machines[machine], **changes)}
    )


def in_new_run(job: Job, machine: MachineId, **changes: Any) -> Job:
    """The job with one machine changed that begins a run in the sandbox, the newest of all."""
    job = replace(job, runs=job.runs + 1)
    return with_machine(job, machine, run=job.runs, outdated=False, **changes)


def without_machine(job: Job, machine: MachineId) -> Job:
    """The job with one machine gone; its seat, if it had one, becomes vacant."""
    return replace(job, machines={m: v for m, v in job.machines.items() if m != machine})


def choose_joiners(
    job: Job, slots: Iterable[Slot], taken: Iterable[MachineId]
) -> dict[Slot, MachineId] | None:
    """A machine for each slot, the readiest first; None if there are too few."""
    slots = list(slots)
    joiners = joiners_there_are(job, slots, taken)
    return joiners if len(joiners) == len(slots) else None


def joiners_there_are(
    job: Job, slots: Iterable[Slot], taken: Iterable[MachineId]
) -> dict[Slot, MachineId]:
    """A machine for each slot, the readiest first, as far as they go.

    A machine that holds the very slot comes before all others, and one that failed a warm-up for
    such a slot after them. A machine whose worker crashed may take its own slot again: that is the
    respawn on a healthy machine when no standby is left. A cordoned machine takes no other's.
    """
    vacant, taken, slots = set(job.vacant()), set(taken), list(slots)
    slot_of = {name: Slot(slot) for slot, name in enumerate(job.seats)}
    free = {
        machine.id: machine
        for machine in job.machines.values()
        if machine.state in _PREFERENCE
        and machine.id not in taken
        and (machine.id not in slot_of or slot_of[machine.id] in vacant)
        and not other_torch(job, machine)
        and not (machine.suspect and machine.id not in slot_of)
    }
    first_of = representatives(job)
    joiners: dict[Slot, MachineId] = {}
    held = {machine.held for machine in free.values() if machine.state is MachineState.WARM}
    for slot in sorted(slots, key=lambda slot: (slot not in held, slot)):
        its_own = job.seats[slot] if slot < len(job.seats) else None
        able = [m for name, m in free.items() if name not in job.cordoned or name == its_own]
        if able:
            best = min(able, key=lambda m: _readiness(m, slot, first_of.get(slot)))
            joiners[slot] = free.pop(best.id).id
    return joiners


def _holds(machine: Machine, slot: Slot) -> bool:
    return machine.state is MachineState.WARM and machine.held == slot


def _readiness(
    machine: Machine, slot: Slot, first: Slot | None
) -> tuple[bool, bool, int, bool, tuple[str, int, str]]:
    """Lowest first. One that rests between two warm-ups and has proven the kind is warm for it."""
    state = machine.state
    if state is MachineState.IDLE and first is not None and machine.proven(first):
        state = MachineState.WARM
    other_held = machine.held is not None and machine.held != slot
    return (
        bool(machine.why_unfit(first)),
        not _holds(machine, slot),
        _PREFERENCE.index(state),
        other_held,  # Its run is better kept for the slot it is of.
        machine.place,
    )


def spare(job: Job) -> list[Machine]:
    """Machines without ranks, in natural order."""
    names = job.machines.keys() - _seated(job)
    return sorted((job.machines[name] for name in names), key=lambda machine: machine.place)


@kept_for("seats")
def _seated(job: Job) -> frozenset[MachineId]:
    return frozenset(job.seats)


def at_hand(job: Job) -> list[Machine]:
    """Machines without ranks that may take some."""
    return [machine for machine in spare(job) if machine.id not in job.cordoned]


def other_torch(job: Job, machine: Machine) -> str:
    """Both versions, if `machine` has another torch than the job's ranks: its numbers would differ,
    or its collectives; "" if it has not, or that is not known yet."""
    seated = [job.machines[name].torch for name in job.seats if name in job.machines]
    theirs = next((torch for torch in seated if torch), "")
    if machine.id in job.seats or not machine.torch or machine.torch == (theirs or machine.torch):
        return ""
    return f"it runs torch {machine.torch}, the job's ranks run torch {theirs}"


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
    """Where the worker of `rank` serves state."""
    slot, local_rank = divmod(rank, job.spec.nproc)
    return job.machines[seats[slot]].workers[local_rank]
