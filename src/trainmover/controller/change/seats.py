"""Who keeps what for whom: buddies, sources of state, choice of a joiner. Pure."""

from collections.abc import Collection, Iterable
from typing import Any

from trainmover.controller.compare.roles import representatives
from trainmover.controller.state import Change, Cordon, Job, Machine, MachineState
from trainmover.controller.state import slots as seated
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
    changed = replace(job.machines[machine], **changes)
    return replace(job, machines=job.machines.having(machine, changed))


def in_new_run(job: Job, machine: MachineId, **changes: Any) -> Job:
    """The job with one machine changed that begins a run in the sandbox, the newest of all."""
    job = replace(job, runs=job.runs + 1)
    return with_machine(job, machine, run=job.runs, outdated=False, **changes)


def with_cordon(job: Job, machine: MachineId, cordon: Cordon) -> Job:
    """The job with one machine that takes no ranks; another cordon than it had, if it had one."""
    return replace(job, cordoned={**job.cordoned, machine: cordon})


def cordoned_by_people(job: Job, machine: MachineId, reason: str, at_us: int) -> Job:
    """The job with one machine that somebody wants to take no ranks. That it will be taken away, or
    seems about to fail, is as true as before: its ranks are still to go."""
    known = job.cordoned.get(machine, Cordon(at_us))
    return with_cordon(job, machine, replace(known, at_us=at_us, reason=reason, health=False))


def without_cordon(job: Job, machine: MachineId) -> Job:
    """The job with one machine that may take ranks."""
    left = {name: one for name, one in job.cordoned.items() if name != machine}
    return replace(job, cordoned=left)


def without_machines(job: Job, machines: Iterable[MachineId]) -> Job:
    """The job with some machines gone; their seats, if they had any, become vacant."""
    return replace(job, machines=job.machines.without(set(machines)))


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
    taken, slots, slot_of = set(taken), list(slots), seated(job)
    may_join = (
        machine
        for machine in job.machines.values()
        if machine.state in _PREFERENCE
        and machine.id not in taken
        and (machine.id not in slot_of or job.is_vacant(slot_of[machine.id]))
        and not other_torch(job, machine)
        and not (machine.suspect and machine.id not in slot_of)
    )
    free = _Free(may_join, job.cordoned)
    first_of = representatives(job)
    joiners: dict[Slot, MachineId] = {}
    held = {machine.held for machine in free.all.values() if machine.state is MachineState.WARM}
    for slot in sorted(slots, key=lambda slot: (slot not in held, slot)):
        first, its_own = first_of.get(slot), job.seats[slot] if slot < len(job.seats) else None
        able = free.best(slot, first)
        if its_own in free.all:
            able.append(free.all[its_own])
        if able:
            best = min(able, key=lambda m: _readiness(m, slot, first))
            joiners[slot] = free.all.pop(best.id).id
    return joiners


_NO_SLOT = Slot(-1)


class _Free:
    """Machines that may join, in the order in which they are taken: for thousands of slots it is
    made once for each kind. Only who holds the run of a slot is another one for that slot."""

    def __init__(self, machines: Iterable[Machine], cordoned: Collection[MachineId]) -> None:
        self.all = {machine.id: machine for machine in machines}
        self._for_others = [m for m in self.all.values() if m.id not in cordoned]
        self._by_held: dict[Slot, list[Machine]] = {}
        for machine in self._for_others:
            if machine.held is not None:
                self._by_held.setdefault(machine.held, []).append(machine)
        self._in_order: dict[Slot | None, list[Machine]] = {}

    def best(self, slot: Slot, first: Slot | None) -> list[Machine]:
        """Those among whom the best is: who holds the slot's run, and the first of all others."""
        order = self._in_order.get(first)
        if order is None:
            order = sorted(
                self._for_others,
                key=lambda machine: _readiness(machine, _NO_SLOT, first),
                reverse=True,
            )
            self._in_order[first] = order
        while order and order[-1].id not in self.all:
            order.pop()
        return [m for m in (*self._by_held.get(slot, ()), *order[-1:]) if m.id in self.all]


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


@kept_for("machines", "seats")
def spare(job: Job) -> tuple[Machine, ...]:
    """Machines without ranks, in natural order."""
    names = job.machines.keys() - seated(job).keys()
    return tuple(sorted((job.machines[name] for name in names), key=lambda machine: machine.place))


def at_hand(job: Job) -> list[Machine]:
    """Machines without ranks that may take some."""
    return [machine for machine in spare(job) if machine.id not in job.cordoned]


def other_torch(job: Job, machine: Machine) -> str:
    """Both versions, if `machine` has another torch than the job's ranks: its numbers would differ,
    or its collectives; "" if it has not, or that is not known yet."""
    known = (job.machines[name].torch for name in job.seats if name in job.machines)
    theirs = next((torch for torch in known if torch), "")
    if (
        job.slot_of(machine.id) is not None
        or not machine.torch
        or machine.torch == (theirs or machine.torch)
    ):
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
