"""Who keeps what for whom: buddies, sources of state, choice of a joiner. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from trainmover.controller.state import Change, Job, Machine, MachineState
from trainmover.ids import MachineId, Rank, Slot, Step

# A joiner that is warm costs least; one that still comes up is better than none. A cold one (its
# shadow run differed from the record) is never taken.
_PREFERENCE = (
    MachineState.WARM,
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


def without_machine(job: Job, machine: MachineId) -> Job:
    """The job with one machine gone; its seat, if it had one, becomes vacant."""
    return replace(job, machines={m: v for m, v in job.machines.items() if m != machine})


def choose_joiners(
    job: Job, slots: Iterable[Slot], taken: Iterable[MachineId]
) -> dict[Slot, MachineId] | None:
    """A machine for each slot, the readiest first; None if there are too few.

    A machine whose worker crashed may take its own slot again: that is the respawn on a healthy
    machine when no standby is left.
    """
    vacant = set(job.vacant())
    free = [
        machine
        for machine in sorted(job.machines.values(), key=lambda m: (_rank_of_state(m), m.place))
        if machine.id not in taken
        and machine.state in _PREFERENCE
        and (machine.id not in job.seats or job.slot_of(machine.id) in vacant)
    ]
    slots = list(slots)
    if len(free) < len(slots):
        return None
    return {slot: machine.id for slot, machine in zip(slots, free, strict=False)}


def _rank_of_state(machine: Machine) -> int:
    return _PREFERENCE.index(machine.state) if machine.state in _PREFERENCE else len(_PREFERENCE)


def seats_after(job: Job, change: Change) -> tuple[MachineId, ...]:
    """Slot -> machine once `change` is through."""
    return tuple(change.joiners.get(Slot(slot), machine) for slot, machine in enumerate(job.seats))


def buddies(job: Job, seats: tuple[MachineId, ...]) -> dict[Rank, str]:
    """Rank -> vault of the machine that keeps its record: the next one round the ring.

    A job of one machine asks a standby, and only if there is none its own agent: then a lost
    machine is lost for good, which `verdict` will say.
    """
    alive = [machine for machine in seats if machine in job.machines]
    ring = alive if len(alive) > 1 else [*alive, *_others(job, seats)]
    keeper = {
        machine: job.machines[ring[(place + 1) % len(ring)]].vault
        for place, machine in enumerate(ring)
    }
    return {
        rank: keeper[machine]
        for slot, machine in enumerate(seats)
        if machine in keeper
        for rank in job.spec.ranks(Slot(slot))
    }


def _others(job: Job, seats: tuple[MachineId, ...]) -> list[MachineId]:
    spare = [machine for machine in job.machines.values() if machine.id not in seats]
    return [machine.id for machine in sorted(spare, key=lambda m: m.place)][:1]


def record_places(job: Job) -> dict[Rank, list[str]]:
    """Rank -> vaults that may hold the record of its first steps, the likeliest first.

    Every machine that lives is asked: the ring as it will be says nothing of where a rank that is
    lost has put its record.
    """
    slots = len(job.seats)
    places: dict[Rank, list[str]] = {}
    for slot in range(slots):
        ring = [job.seats[(slot + step) % slots] for step in range(1, slots + 1)]
        names = [*ring, *sorted(job.machines.keys() - set(ring))]
        vaults = [job.machines[name].vault for name in names if name in job.machines]
        places |= {rank: vaults for rank in job.spec.ranks(Slot(slot))}
    return places


def holders(change: Change, rank: Rank, step: Step, vaults: dict[MachineId, str]) -> list[str]:
    """Vaults that hold the record with which `rank` runs `step`."""
    return [
        vaults[machine]
        for machine, held in change.vaults.items()
        if machine in vaults and step in held.get(rank, [])
    ]


def replica(job: Job, rank: Rank, survivors: list[Rank]) -> Rank | None:
    """A survivor whose bulk state was equal to `rank`'s when the first steps were recorded.

    Sources are spread by rank, so that several joiners do not all ask one stayer.
    """
    digest = job.recorded[rank].digest
    equal = [other for other in survivors if job.recorded[other].digest == digest]
    return equal[rank % len(equal)] if equal else None


def address_of(job: Job, seats: tuple[MachineId, ...], rank: Rank) -> str:
    """Where the worker of `rank` serves state."""
    slot, local_rank = divmod(rank, job.spec.nproc)
    return job.machines[seats[slot]].workers[local_rank]
