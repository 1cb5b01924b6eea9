# SPDX-License-Identifier: Apache-2.0
"""Standbys in whose processes something is the matter: what they are told to run again and where,
when they are left alone, what is known of each, and what its joining is said to cost."""

import random
from collections import Counter
from statistics import median

from courses.standby.remembering import TWICE, Processes, Proof
from courses.trained import SECOND_US
from trainmover.controller.effects import Send
from trainmover.controller.events import SlowSuspected
from trainmover.controller.standby.attest import predicted_ms
from trainmover.controller.state import Machine, MachineState, Outcome
from trainmover.ids import MachineId, Rank, Slot, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

BYTES_PER_MS, FIXED_MS, START_MS = 500_000, 200.0, 4000.0
CRASHES = 3
LITTLE_MS = 0.001


class Course:
    """cost_ms: of each recovery that is through, all but the ways of the state."""

    def __init__(self, chance: random.Random, **knobs: object) -> None:
        machines, standbys = chance.choice(((2, 1), (2, 2), (3, 2), (4, 3)))
        self.chance = chance
        self.job = Processes(
            chance, machines=machines, standbys=standbys, nproc=chance.choice((1, 2)), wait_s=60,
            **knobs,
        )  # fmt: skip
        self.job.stages = chance.choice([one for one in (1, 2) if one <= machines])
        self.kinds = [*range(self.job.stages)]
        self.cost_ms: list[float] = []

    @property
    def spares(self) -> list[Machine]:
        seats = self.job.job.seats
        return [one for one in self.job.job.machines.values() if one.id not in seats]

    def started(self) -> Counter[MachineId]:
        """Who got fresh processes, since this was asked last."""
        sent = [one for one in self.job.log if isinstance(one, Send)]
        self.job.log = []
        return Counter(one.machine for one in sent if isinstance(one.order, m.StartWorkers))

    def ran(self, names: list[MachineId]) -> list[Send]:
        """What these were told to run, since this was asked last."""
        sent = [one for one in self.job.log if isinstance(one, Send) and one.machine in names]
        self.job.log = []
        return [one for one in sent if isinstance(one.order, m.WarmUp | m.Hold | m.StartWorkers)]

    def steps_change(self, slot: int) -> None:
        """As the first rank there says."""
        job = self.job
        job.old |= {*job.held}
        rank = Rank(slot * job.nproc)
        said = m.StepsChanged(rank=rank, step=Step(9), trace="other", compiled=f"{job.now_us}")
        job.says(job.job.seats[slot], 0, said)

    def lose(self, slot: int) -> MachineId:
        job = self.job
        name = job.job.seats[slot]
        if job.job.change is None:
            job.step = Step(job.step + 3)
        job.lose(name)
        return name

    def is_slow(self, slot: Slot) -> None:
        """It is suspected to be."""
        job = self.job
        seat = job.job.seats[slot]
        job.told.clear()
        job.hear(SlowSuspected(at_us=job.now_us, epoch=job.job.epoch, machine=seat, step=job.step))

    def is_recovered(self) -> None:
        """And all of that is over."""
        job = self.job
        job.gap_us = 1000 * self.chance.randrange(110, 900)
        before = job.now_us
        job.settles()
        one = job.job.incidents[-1]
        if one.outcome is not Outcome.DONE or job.job.change is not None:
            raise Violation(f"it is to be over: {one}, {job.job.change}")
        state_ms = (job.now_us - before) / 1000
        self.cost_ms.append(max(job.gap_us / 1000 - 100.0 - state_ms, 0.0))

    def are_ready(self) -> None:
        """All that can hold runs, of as many slots as they can; and it is known what they have
        proven."""
        held, failed = [], any(proof.failed for proof in self.job.proofs.values())
        for one in self.spares:
            if one.state is MachineState.COLD:
                continue
            if one.state is not MachineState.WARM or one.held is None:
                raise Violation(f"{one.id} is to hold a run: {one}")
            if (one.held, one.run) != self.job.held.get(one.id) or one.id in self.job.old:
                raise Violation(f"{one.id} holds {self.job.held}, it is said {one}")
            self.is_known(one)
            if not one.once:
                held.append(one.held)
        if len({*held}) < min(len(held), len(self.job.job.seats)) and not failed:
            raise Violation(f"{held} are held, and could be of more slots")

    def is_known(self, one: Machine) -> None:
        for kind in self.kinds:
            proof = self.job.proofs.get((one.id, kind))
            said = one.attests.get(Slot(kind))
            known = None
            if said is not None and said.failed:
                known = Proof(failed=True)
            elif said is not None:
                known = Proof(said.warm_ms, said.run_ms, said.held_bytes, said.device_bytes)
            if known != proof:
                raise Violation(f"{one.id} has proven {proof} as {kind}, known is {said}")
            for other_held in (False, True):
                self._is_foretold(one, kind, proof, other_held=other_held)
        ranks = {
            k: [r for r in self.job.ranks if r // self.job.nproc % self.job.stages == k]
            for k in self.kinds
        }
        cannot = [
            f"cannot be rank {', '.join(map(str, ranks[kind]))}: {self.job.why[one.id]}"
            for kind in self.kinds
            if self.job.proofs.get((one.id, kind), Proof()).failed
        ]
        words = [TWICE] * (one.id in self.job.known) + cannot
        if any(word not in one.note for word in words) or bool(words) is not bool(one.note):
            raise Violation(f"{words} is the matter with {one.id}: {one.note!r}")

    def _is_foretold(
        self, one: Machine, kind: int, proof: Proof | None, *, other_held: bool
    ) -> None:
        said = predicted_ms(self.job.job, one, Slot(kind), other_held=other_held)
        if proof is None or proof.failed:
            if said is not None:
                raise Violation(f"{one.id} cannot be {kind}, and that would cost {said} ms")
            return
        holds = not other_held and one.held is not None and one.held % self.job.stages == kind
        run = proof.warm_ms if proof.run_ms is None else proof.run_ms
        fresh = START_MS if one.id in self.job.known else 0.0
        travelled = self.job.travelled
        state_ms = proof.held_bytes / BYTES_PER_MS
        if travelled:
            rate = sum(c.bytes for c in travelled) / sum(c.state_ms for c in travelled)
            state_ms = (travelled[-1].bytes + travelled[-1].held) * self.job.nproc / rate
        fixed_ms = median(self.cost_ms) if self.cost_ms else FIXED_MS
        truth = (0.0 if holds else fresh + run) + state_ms + fixed_ms
        if said is None or abs(said - truth) > LITTLE_MS:
            raise Violation(f"{one.id} as {kind} would cost {truth} ms, and it is said {said}")


def _well(chance: random.Random) -> None:
    """Processes say how long their runs took, and what they hold; losses follow."""
    course = Course(chance)
    job = course.job
    job.trains()
    course.are_ready()
    for _ in range(len(course.spares)):
        job.now_us += SECOND_US
        course.lose(chance.randrange(len(job.job.seats)))
        course.is_recovered()
        course.are_ready()


def _once(chance: random.Random) -> None:
    """The script runs once in a process: then each run gets fresh ones, and only the one that is
    held is made beforehand."""
    course = Course(chance)
    job = course.job
    job.once = {*job.names} if chance.random() < 0.5 else {chance.choice(job.names)}
    job.runs.update(job.job.seats)
    job.trains()
    ones = [one.id for one in course.spares if one.id in job.once]
    if job.known != {*ones} or course.started() != Counter(ones):
        raise Violation(f"{ones} can make one run for each process, and known is {job.known}")
    course.are_ready()
    if not ones:
        return
    _changed(course)
    slot = chance.randrange(len(job.job.seats))
    holds = [one.id for one in course.spares if one.held == slot]
    before = {*job.known}
    course.lose(slot)
    course.is_recovered()
    course.are_ready()
    taker = job.job.seats[slot]
    started = course.started()
    if holds and taker not in holds:
        raise Violation(f"{holds} hold slot {slot}, {taker} takes it")
    if started[taker] != (taker not in holds and taker in before):
        raise Violation(f"{taker} takes slot {slot}, held by {holds}; fresh are {started}")


def _changed(course: Course) -> None:
    """Steps are others: what is held is of no use, and is run again by all."""
    job = course.job
    course.started()
    course.steps_change(0)
    job.settles()
    fresh = {one.id for one in course.spares if one.id in job.known}
    if course.started() != Counter(fresh) or job.old:
        raise Violation(f"{fresh} are to get fresh processes, {job.old} still hold old runs")
    course.are_ready()


def _crash(chance: random.Random) -> None:
    """Processes die of a run: so often, then it is enough."""
    course = Course(chance)
    job = course.job
    name = chance.choice(job.names[len(job.job.seats) :])
    count = chance.randint(1, CRASHES)
    job.crash[name] = count
    job.trains()
    one = job.job.machines[name]
    fresh = count if count < CRASHES else CRASHES - 1
    if course.started() != Counter({name: fresh}):
        raise Violation(f"processes of {name} have died {count} times")
    if job.job.change is not None or job.job.incidents:
        raise Violation(f"{name} has no ranks, and all stand: {job.job.change}")
    course.are_ready()
    if count < CRASHES:
        if one.state is not MachineState.WARM:
            raise Violation(f"processes of {name} have died {count} times: {one}")
        return
    if one.state is not MachineState.COLD or f"crashed {CRASHES} times" not in one.note:
        raise Violation(f"processes of {name} have died {count} times: {one}")
    job.passes(1)
    job.passes(60 * SECOND_US)
    job.crash[name] = chance.choice((0, 1))
    cold = bool(job.crash[name])
    job.settles()
    if course.started() != Counter([name]):
        raise Violation(f"{name} is to be tried again, once")
    if (job.job.machines[name].state is MachineState.COLD) is not cold:
        raise Violation(f"{name} is tried again, dies: {cold}: {job.job.machines[name]}")


def _unfit(chance: random.Random) -> None:
    """One cannot be slots of a kind. A process that has run the script before is believed to be the
    matter, until a fresh one has failed as well."""
    course = Course(chance)
    job = course.job
    name, bad = chance.choice(job.names[len(job.job.seats) :]), chance.choice(course.kinds)
    job.unfit = {(name, f"t{bad}")}
    job.blames = {name} if chance.random() < 0.7 else set()
    if not job.blames and chance.random() < 0.5:
        job.once = {name}
    job.trains()
    one = job.job.machines[name]
    fit = [kind for kind in course.kinds if kind != bad]
    if bool(one.once) is not (name in job.known) or (one.state is MachineState.COLD) is not (
        not fit
    ):
        raise Violation(f"{name} can be {fit} and not {bad}, and is {one}")
    course.are_ready()
    if not fit:
        return
    fresh = Counter([name] * (job.nproc > 1))
    if not job.blames and not job.once and course.started() != fresh:
        raise Violation(f"{name} cannot be {bad}: {fresh} are to get fresh processes, for others")
    slot = next(at for at, _ in enumerate(job.job.seats) if at % job.stages == bad)
    others = [one.id for one in course.spares if one.id != name]
    course.lose(slot)
    change = job.job.change
    joiner = change.joiners.get(Slot(slot)) if change is not None else None
    if others and joiner not in others:
        raise Violation(f"{name} cannot be slot {slot}, {others} can, {joiner} is to take it")


def _will_be_needed(chance: random.Random) -> None:
    """A slot's machine may be slow: its run is held instead of another's, by who can and has rested
    from the last time."""
    course = Course(chance, stragglers=chance.choice(("act", "act", "watch")))
    job = course.job
    if chance.random() < 0.2:
        job.once = {job.names[-1]}
    job.trains()
    held = {one.held for one in course.spares}
    free = [slot for slot in map(Slot, range(len(job.job.seats))) if slot not in held]
    slots = chance.sample(free, min(2, len(free))) or [Slot(0)]
    told: list[tuple[MachineId, Slot]] = []
    for slot in slots:
        ready = [one for one in reversed(course.spares) if one.id not in job.known]
        able = [one for one in ready if (one.id, slot % job.stages) in job.proofs]
        acts = job.job.spec.stragglers == "act" and slot in free and able and not told
        course.is_slow(slot)
        ran = job.orders(m.Hold)
        if [(name, order.slot) for name, order in ran] != ([(able[0].id, slot)] if acts else []):
            raise Violation(f"slot {slot} may be slow, {able} can be it: {ran}, told {told}")
        told += [(name, order.slot) for name, order in ran]
        job.settles()
    if not told or len(slots) < 2:
        return
    rests_ms = 10 * job.longest(told[0][0])
    for wait_ms, due in ((rests_ms - 1, False), (1, True)):
        job.now_us += 1000 * wait_ms
        course.is_slow(slots[1])
        if len(course.spares) == 1 and bool(job.orders(m.Hold)) is not due:
            raise Violation(f"it has rested {wait_ms} of {rests_ms} ms: {job.told}")
    job.settles()
    course.are_ready()


def _troubled(chance: random.Random) -> None:
    """Whose machine has failed most is the slot that is held; none is, while the script ends."""
    course = Course(chance)
    job = course.job
    job.trains()
    for name in job.names[len(job.job.seats) :]:
        job.lose(name)
    job.settles()
    troubles: Counter[int] = Counter()
    for _ in range(chance.randint(1, 3)):
        slot = chance.randrange(len(job.job.seats))
        name = job.job.seats[slot]
        pid = job.job.machines[name].pids[0]
        job.now_us, job.step = job.now_us + SECOND_US, Step(job.step + 3)
        job.agent_says(name, m.WorkerExited(local_rank=0, pid=pid, code=-11))
        course.is_recovered()
        troubles[slot] += 1
        if job.job.seats[slot] != name:
            raise Violation(f"there is no other than {name} for slot {slot}: {job.job.seats}")
    ends = chance.random() < 0.3
    if ends:
        rank = Rank(job.ranks[-1])
        done = m.Finished(rank=rank, step=Step(job.step + 1), code=0, digest="d", attached=True)
        job.says(job.job.seats[-1], rank % job.nproc, done)
    job.log.clear()
    for number in (8, 9):
        job.joins(MachineId(f"m{number}"))
    job.settles()
    if ends:
        if course.started() != Counter([MachineId("m8"), MachineId("m9")]) or job.held:
            raise Violation(f"the script ends, and {job.held} are held")
        return
    order = sorted(range(len(job.job.seats)), key=lambda slot: (-troubles[slot], slot))
    if [one.held for one in course.spares] != order[:2]:
        raise Violation(f"{troubles} were lost: {course.spares} hold other than {order[:2]}")
    course.are_ready()


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice((_well, _well, _once, _once, _crash, _unfit, _will_be_needed, _troubled))(chance)
