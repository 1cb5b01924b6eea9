# SPDX-License-Identifier: Apache-2.0
"""Machines in all states, with all that can speak against them: who is to take slots that are
empty, and what is said where nobody can."""

import random

from trainmover.controller.change.seats import without_machines
from trainmover.controller.facts import Facts
from trainmover.controller.standby.joiners import (
    can_be_spared,
    choose_joiners,
    everybody,
    joiners_after_loss,
    joiners_there_are,
    kept_out_text,
    no_standby,
    unable_to_stand_by,
)
from trainmover.controller.state import (
    Attestation,
    Change,
    Cordon,
    Job,
    Kind,
    Machine,
    Machines,
    MachineState,
    Phase,
    Stage,
)
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

READIEST = (
    MachineState.WARM, MachineState.HOLDING, MachineState.WARMING, MachineState.IDLE,
    MachineState.LEAVING, MachineState.STARTING, MachineState.DOWN,
)  # fmt: skip
COLD = "it cannot"


class Course:
    """gone: slots whose machines are lost; down: whose processes are; through: who need no machine,
    since their ranks were through with the script. empty: slots that do."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        count, standbys = chance.choice(((2, 2), (4, 3), (6, 5), (12, 20)))
        self.nproc = chance.choice((1, 2))
        self.stages = chance.choice((1, 2, count))
        spec = m.JobSpec(
            run_id="chosen", argv=[], machines=count, standbys=standbys, nproc=self.nproc,
            wait_s=chance.choice((0, 9)),
        )  # fmt: skip
        seats = [MachineId(f"m{number}") for number in range(1, count + 1)]
        self.spares = [MachineId(f"m{count + number}") for number in range(1, standbys + 1)]
        lost = [
            Slot(slot) for slot in chance.sample(range(count), chance.randint(1, count // 2 + 1))
        ]
        self.down = {slot for slot in lost if chance.random() < 0.4}
        self.gone = {*lost} - self.down
        self.through = {slot for slot in self.down if chance.random() < 0.3}
        self.cordoned: dict[MachineId, Cordon] = {}
        machines = {
            name: Machine(name, False, f"{name}:1", name, state=MachineState.ACTIVE, torch="2")
            for slot, name in enumerate(seats)
            if slot not in self.gone
        }
        for slot in self.down:
            machines[seats[slot]] = replace(machines[seats[slot]], state=MachineState.DOWN)
            if chance.random() < 0.3:
                self.cordoned[seats[slot]] = Cordon(0, "dust")
            elif chance.random() < 0.3:
                machines[seats[slot]] = replace(machines[seats[slot]], suspect="its bits flip")
        machines |= {name: self._spare(name, count) for name in self.spares}
        shuffled = chance.sample([*machines], len(machines))
        self.job = Job(
            spec=spec, phase=Phase.RUNNING, seats=tuple(seats), torch="2",
            machines=Machines({name: machines[name] for name in shuffled}),
            cordoned=self.cordoned,
        )  # fmt: skip
        self.job = replace(self.job, recorded=Facts(self._recorded()))
        through = {rank: (Step(9), "d") for slot in self.through for rank in spec.ranks(slot)}
        self.job = replace(self.job, finished=Facts(through))
        self.down -= self.through
        self.empty = sorted({*lost} - self.through)

    def _recorded(self) -> dict[Rank, m.Recorded]:
        """Some refer to the record of another rank, or leave out what another's has."""
        chance, said = self.chance, dict[Rank, m.Recorded]()
        for rank in map(Rank, range(self.job.spec.world_size)):
            kind = rank // self.nproc % self.stages
            alike = [o for o in said if self.role(o) == self.role(rank) and not said[o].record_of]
            own = [one for one in alike if said[one].record_of is None]
            of = chance.choice(own) if own and chance.random() < 0.4 else None
            base = chance.choice([None, *said]) if of is None and chance.random() < 0.4 else None
            said[rank] = m.Recorded(
                rank=rank, step=Step(3), trace=f"t{kind}", digest="d", bytes=1,
                signature=f"s{kind}", record_of=of, base=base,
            )  # fmt: skip
        return said

    def role(self, rank: Rank) -> int:
        return rank // self.nproc % self.stages

    def _spare(self, name: MachineId, count: int) -> Machine:
        chance = self.chance
        state = chance.choice([*READIEST, *[MachineState.WARM] * 5, MachineState.COLD])
        held = Slot(chance.randrange(count)) if state is MachineState.WARM else None
        attests = {
            Slot(kind): Attestation(0, failed="no" if chance.random() < 0.2 else "")
            for kind in range(self.stages)
            if chance.random() < 0.7
        }
        if held is not None:
            attests[Slot(held % self.stages)] = Attestation(0)
        note = COLD if state is MachineState.COLD else chance.choice(("", "cannot be rank 7"))
        one = Machine(
            name, True, f"{name}:1", name, state=state, torch="2", attests=attests, note=note,
            held=held if chance.random() < 0.7 else None,
        )  # fmt: skip
        match chance.choice(("", "", "", "cordon", "spared", "torch", "suspect")):
            case "cordon":
                self.cordoned[name] = Cordon(0, chance.choice(("", "dust")))
            case "spared":
                self.cordoned[name] = Cordon(0, "slow", spared=True)
            case "torch":
                one = replace(one, torch="3")
            case "suspect":
                one = replace(one, suspect="its bits flip")
        return one

    # --- what is so -----------------------------------------------------------------------------

    def able(self, *, spared: bool = False) -> list[Machine]:
        """Standbys that may take ranks; spared: also those that only a policy keeps out."""
        return [
            one
            for name in self.spares
            for one in [self.job.machines[name]]
            if one.state is not MachineState.COLD and one.torch == "2" and not one.suspect
            and (name not in self.cordoned or (spared and self.cordoned[name].spared))
        ]  # fmt: skip

    def is_better(self, one: Machine, other: Machine, slot: Slot) -> bool:
        return self._rank_of(one, slot) < self._rank_of(other, slot)

    def _rank_of(self, one: Machine, slot: Slot) -> tuple[bool, bool, int, bool, int]:
        first = Slot(slot % self.stages)
        proof = one.attests.get(first)
        rests = one.state is MachineState.IDLE and proof is not None and not proof.failed
        state = MachineState.WARM if rests else one.state
        return (
            proof is not None and bool(proof.failed),
            one.held != slot,
            READIEST.index(state),
            one.held not in (None, slot),
            int(one.id[1:]),
        )


def _joins(chance: random.Random) -> None:
    course = Course(chance)
    job, empty = course.job, course.empty
    taken = {MachineId(name) for name in chance.sample(course.spares, chance.randint(0, 1))}
    joiners = joiners_there_are(job, iter(chance.sample(empty, len(empty))), taken)
    able = [one for one in course.able() if one.id not in taken]
    _are_the_readiest(course, joiners, able)
    enough = len(joiners) == len(empty)
    if (chosen := choose_joiners(job, iter(empty), taken)) != (joiners if enough else None):
        raise Violation(f"{empty} are empty, {joiners} there are: {chosen}")
    more = joiners_after_loss(job, iter(empty), iter(taken))
    spared = [one for one in course.able(spared=True) if one.id not in taken]
    if any(more.get(slot) != name for slot, name in joiners.items()):
        raise Violation(f"{joiners} can take slots, and {more} are to, though some are kept out")
    left = [slot for slot in empty if slot not in joiners]
    late = {slot: name for slot, name in more.items() if slot not in joiners}
    if len({*more.values()}) < len(more) or not {*late.values()} <= {one.id for one in spared}:
        raise Violation(f"{left} are left after {joiners}, and {late} take them")
    if len(late) != min(len(left), len(spared) - len(able)):
        raise Violation(f"{left} are left, {spared} there are: {late}")


def _are_the_readiest(course: Course, joiners: dict[Slot, MachineId], able: list[Machine]) -> None:
    job = course.job
    own = {slot: job.seats[slot] for slot in course.down}
    others = {slot: name for slot, name in joiners.items() if name != own.get(slot)}
    downs = {name for name in own.values() if name not in course.cordoned}
    if not {*others.values()} <= {one.id for one in able} | downs:
        raise Violation(f"{able} may take ranks, and {others} do")
    idle_own = [slot for slot in own if own[slot] not in joiners.values()]
    if left := [slot for slot in idle_own if slot not in joiners]:
        raise Violation(f"{left} have their own machines, and nobody takes them: {joiners}")
    if len({*joiners.values()}) < len(joiners):
        raise Violation(f"one takes two slots: {joiners}")
    idle = [one for one in able if one.id not in joiners.values()]
    if idle and len(joiners) < len(course.empty):
        raise Violation(f"{course.empty} are empty, {idle} take none: {joiners}")
    for slot, name in joiners.items():
        taker = job.machines[name]
        if better := [one.id for one in idle if course.is_better(one, taker, slot)]:
            raise Violation(f"{better} are readier for slot {slot} than {taker}")
        unfit = (proof := taker.attests.get(Slot(slot % course.stages))) and proof.failed
        for other in joiners:
            if other != slot and taker.held == other and not unfit:
                its = job.machines[joiners[other]]
                why = taker.why_unfit(Slot(other % course.stages))
                if its.held != other and not why:
                    raise Violation(f"{name} holds slot {other}, and takes {slot}: {joiners}")


def _is_said(chance: random.Random) -> None:
    """Who is there and cannot, and why."""
    course = Course(chance)
    job = course.job
    out = {
        name: one
        for name in course.spares
        for one in [job.machines[name]]
        if name in course.cordoned or one.torch != "2" or one.suspect
    }
    words = {
        name: (
            "is cordoned (" + course.cordoned[name].reason + ")"
            if name in course.cordoned and course.cordoned[name].reason
            else "is cordoned"
            if name in course.cordoned
            else f"gets no ranks: {one.suspect or 'it runs torch 3'}"
        )
        for name, one in out.items()
    }
    said = kept_out_text(job)
    parts = [part for part in said.split("; ") if part]
    if len(parts) != len(words) or any(
        not part.startswith(f"{name} {words[name]}")
        for name, part in zip(words, parts, strict=True)
    ):
        raise Violation(f"{words} are kept out, and it is said {said!r}")
    cold = [n for n in course.spares if n not in out and job.machines[n].state is MachineState.COLD]
    if [one.id for one in unable_to_stand_by(job)] != cold:
        raise Violation(f"{cold} cannot stand by: {unable_to_stand_by(job)}")
    needed, have = (
        len(course.empty),
        len(course.spares) - len(course.cordoned.keys() & {*course.spares}),
    )
    knows = chance.random() < 0.5
    text = no_standby(job, COLD if knows else "m1 is gone", needed, waited_s=chance.choice((0, 7)))
    truth = [
        f"{needed} machine{'s' if needed > 1 else ''} must be replaced",
        f"and {have} standby is left" if have == 1 else f"and {have} standbys are left",
        *([] if knows else [f"{name} cannot: {COLD}" for name in cold]),
        said,
        "More standbys would not help" if cold and have >= needed else "Start it again with more",
    ]
    if any(word not in text for word in truth) or (knows and "cannot: " in text):
        raise Violation(f"{truth} is so, and it is said {text!r}")
    _can_be_spared(course)


def _all_go_back(chance: random.Random) -> None:
    """Each slot has a machine then, also those of ranks that were through; or there are too few."""
    course = Course(chance)
    job, able = course.job, [one.id for one in course.able(spared=True)]
    some = dict(zip(course.empty, able, strict=False))
    lost = [name for slot, name in enumerate(job.seats) if slot in course.through]
    job = without_machines(job, lost)
    change = Change(
        kind=Kind.RECOVERY, epoch=Epoch(2), stage=Stage.BOUNDARY, incident=1, joiners=some,
        leavers={},
    )  # fmt: skip
    found = everybody(job, change)
    own = {Slot(slot): name for slot, name in enumerate(job.seats) if name in job.machines}
    known = own | some
    left = [slot for slot in map(Slot, range(len(job.seats))) if slot not in known]
    free = [name for name in able if name not in some.values()]
    free += [
        job.seats[s] for s in course.down.intersection(some) if job.seats[s] not in job.cordoned
    ]
    if found is None:
        if len(free) >= len(left):
            raise Violation(f"{left} have no machine, {free} are free, and nobody is found")
        return
    if any(found[slot] != name for slot, name in known.items()) or len(found) != len(job.seats):
        raise Violation(f"{known} have slots, and all are {found}")
    if len({*found.values()}) < len(found) or not {found[slot] for slot in left} <= {*free}:
        raise Violation(f"{left} are left, {free} are free: {found}")


def _can_be_spared(course: Course) -> None:
    job = course.job
    for name in job.seats:
        if name in job.machines:
            without = without_machines(job, [name])
            empty = without.vacant()
            all_taken = len(joiners_after_loss(without, empty, ())) == len(empty)
            if can_be_spared(job, name) is not (bool(job.spec.wait_s) or all_taken):
                raise Violation(f"{empty} would be empty, {name} can be spared: {not all_taken}")


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice((_joins, _joins, _joins, _is_said, _all_go_back))(chance)
