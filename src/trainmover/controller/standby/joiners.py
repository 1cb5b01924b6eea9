# SPDX-License-Identifier: Apache-2.0
"""Who can take a slot, the readiest first; and what is to be said if nobody can. Pure."""

from collections.abc import Collection, Iterable

from trainmover.controller.change.seats import at_hand, other_torch, spare, without_machines
from trainmover.controller.compare.roles import representatives
from trainmover.controller.state import Change, Job, Machine, MachineState
from trainmover.controller.state import slots as seated
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Slot

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


def choose_joiners(
    job: Job, slots: Iterable[Slot], taken: Iterable[MachineId]
) -> dict[Slot, MachineId] | None:
    """Return a machine for each slot, the readiest first; None if there are too few."""
    slots = list(slots)
    joiners = joiners_there_are(job, slots, taken)
    return joiners if len(joiners) == len(slots) else None


def joiners_after_loss(
    job: Job, slots: Iterable[Slot], taken: Iterable[MachineId]
) -> dict[Slot, MachineId]:
    """The same; where there are too few, also machines that only a policy keeps out. A slow machine
    is better than none."""
    slots, taken = list(slots), list(taken)
    joiners = joiners_there_are(job, slots, taken)
    left = [slot for slot in slots if slot not in joiners]
    kept_out = {name: cordon for name, cordon in job.cordoned.items() if not cordon.spared}
    job = replace(job, cordoned=kept_out)
    return joiners | joiners_there_are(job, left, [*taken, *joiners.values()])


def joiners_there_are(
    job: Job, slots: Iterable[Slot], taken: Iterable[MachineId]
) -> dict[Slot, MachineId]:
    """A machine for each slot, the readiest first, as far as they go.

    A machine that holds the very slot comes before all others, one without contact after them, and
    then one that failed a warm-up for such a slot. A machine whose worker crashed may take its own
    slot again: that is the respawn on a healthy machine when no standby is left. A cordoned machine
    takes no other's.
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
    free = _Free(may_join, job.cordoned, job.away)
    first_of = representatives(job)
    joiners: dict[Slot, MachineId] = {}
    for slot in sorted(slots, key=lambda slot: (slot not in free.by_held, slot)):
        first, its_own = first_of.get(slot), job.seats[slot]
        able = free.best(slot, first)
        if its_own in free.all:
            able.append(free.all[its_own])
        if able:
            best = min(able, key=lambda m: _readiness(m, slot, first, job.away))
            joiners[slot] = free.all.pop(best.id).id
    return joiners


_NO_SLOT = Slot(-1)


class _Free:
    """Machines that may join, in the order in which they are taken: for thousands of slots it is
    made once for each kind. Only who holds the run of a slot is another one for that slot."""

    def __init__(
        self,
        machines: Iterable[Machine],
        cordoned: Collection[MachineId],
        away: Collection[MachineId],
    ) -> None:
        self._away = away
        self.all = {machine.id: machine for machine in machines}
        self._for_others = [m for m in self.all.values() if m.id not in cordoned]
        self.by_held: dict[Slot, list[Machine]] = {}
        for machine in self._for_others:
            if machine.held is not None:
                self.by_held.setdefault(machine.held, []).append(machine)
        self._in_order: dict[Slot | None, list[Machine]] = {}

    def best(self, slot: Slot, first: Slot | None) -> list[Machine]:
        """Those among whom the best is: who holds the slot's run, and the first of all others."""
        order = self._in_order.get(first)
        if order is None:
            order = sorted(
                self._for_others,
                key=lambda machine: _readiness(machine, _NO_SLOT, first, self._away),
                reverse=True,
            )
            self._in_order[first] = order
        while order and order[-1].id not in self.all:
            order.pop()
        return [m for m in (*self.by_held.get(slot, ()), *order[-1:]) if m.id in self.all]


def _readiness(
    machine: Machine, slot: Slot, first: Slot | None, away: Collection[MachineId]
) -> tuple[bool, bool, bool, int, bool, tuple[str, int, str]]:
    """Lowest first. One that rests between two warm-ups and has proven the kind is warm for it."""
    state = machine.state
    if state is MachineState.IDLE and machine.proven(first):
        state = MachineState.WARM
    return (
        bool(machine.why_unfit(first)),
        machine.id in away,
        machine.held != slot,
        _PREFERENCE.index(state),
        machine.held is not None,  # Its run is better kept for the slot it is of.
        machine.place,
    )


def no_standby(job: Job, cause: str, needed: int, *, waited_s: int = 0) -> str:
    """Three lines for the user when nobody can take a slot. waited_s: for how long in vain."""
    have = len(at_hand(job))
    unable = unable_to_stand_by(job)
    known = "".join(f"; {m.id} cannot: {m.note}" for m in unable if m.note not in cause)
    known += kept_out_text(job)
    return (
        f"{cause}; {needed} machine{'s' * (needed > 1)} must be replaced and {have} standby"
        f"{'s are' if have != 1 else ' is'} left"
        f"{f', and none has come in {waited_s} s' if waited_s else ''}{known}.\n"
        "The job has ended.\n"
        + (
            "More standbys would not help: mend what keeps these from taking ranks."
            if unable and have >= needed
            else _more_standbys(waited_s)
        )
    )


def _more_standbys(waited_s: int) -> str:
    """What to do next time; a wait that was given was too short."""
    wait = "let it wait for one (--wait-for-machine)"
    if waited_s:
        wait = f"let it wait longer for one (--wait-for-machine {waited_s} was given)"
    return f"Start it again with more --standbys, or {wait}."


def kept_out_text(job: Job) -> str:
    """Standbys that nobody may choose, as an aside; "" if there are none."""
    return "".join(
        f"; {machine.id} {why}" for machine in spare(job) if (why := _why_kept_out(job, machine))
    )


def _why_kept_out(job: Job, machine: Machine) -> str:
    cordon = job.cordoned.get(machine.id)
    if cordon is not None:
        return f"is cordoned ({cordon.reason})" if cordon.reason else "is cordoned"
    why = machine.suspect or other_torch(job, machine)
    return f"gets no ranks: {why}" if why else ""


def unable_to_stand_by(job: Job) -> list[Machine]:
    """Machines without ranks that have found out that they can take none; their notes say why."""
    cold = [m for m in spare(job) if m.state is MachineState.COLD]
    return [machine for machine in cold if not _why_kept_out(job, machine)]


def everybody(job: Job, change: Change) -> dict[Slot, MachineId] | None:
    """A machine for every slot, to go back with: its joiner, else whoever has it. None if a machine
    is gone whose ranks were through with the script, and there is no other for them."""
    here = {Slot(slot): name for slot, name in enumerate(job.seats) if name in job.machines}
    joiners = here | change.joiners
    gone = [Slot(slot) for slot in range(len(job.seats)) if slot not in joiners]
    more = joiners_after_loss(job, gone, joiners.values())
    return joiners | more if len(more) == len(gone) else None


def can_be_spared(job: Job, machine: MachineId) -> bool:
    """Whether others could take its ranks, or will be waited for."""
    without = without_machines(job, [machine])
    slots = without.vacant()
    return bool(job.spec.wait_s) or len(joiners_after_loss(without, slots, ())) == len(slots)
