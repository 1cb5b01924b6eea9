# SPDX-License-Identifier: Apache-2.0
"""Recoveries, stage by stage, in which more breaks: where ranks stood says which step was the last;
who has to do something next is told so once all of before is done, and nobody else is.
"""

import random

import msgspec

from courses.change.broken import Breach, Broken
from courses.change.staged import MS, Said
from trainmover.controller.change.buddies import holding
from trainmover.controller.state import MachineState, Outcome
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

MIXES = ("some past", "all in", "some not")
"""Ranks are past a step's gate, or in it, or still compute it."""


class Course(Broken):
    """It is mended. mixes: where ranks may have stood; doubted: of whom nothing is taken."""

    mixes: tuple[str, ...] = MIXES
    doubted: frozenset[Rank] = frozenset()

    def mends(self) -> None:
        stages = {
            "drain": self.drains, "boundary": self.comes_to_boundary, "switch": self.switches,
            "commit": self._commits,
        }  # fmt: skip
        names, at = [*stages], 0
        while at < len(names):
            breach = self.trouble(names[at]) if self.troubles else None
            if breach is not None and self.chance.random() < 0.4:
                self.troubles -= 1
                stages[names[at]](but=self.chance.randint(1, 3))
                if names[at] == "commit":
                    self._all_go()
                self.breaks(breach)
                at = 0
                continue
            stages[names[at]]()
            at += 1

    def drains(self, *, but: int = 0) -> None:
        """Where ranks stood says what is decided, and nothing is before all have said it."""
        job = self.job
        self._links_break()
        positions, verdict = self.mix()
        self.held = self.records(verdict)
        job.hears_all(self.stood(positions), "where ranks stood", but=but)
        if but:
            return
        order = m.Verdict(epoch=job.epoch, committed=verdict)
        job.follows(dict.fromkeys(self.stays.values(), order), f"{positions}, {self.held}")
        self.verdict, one = verdict, self.one
        self.failing = self.failing or Step(verdict + 1)
        if one.failed != (self.failing, job.job.epoch):
            raise Violation(f"step {self.failing} of epoch {job.job.epoch} did not come: {one}")
        held = {
            rank: sorted({s for its in self.held.values() for s in its.get(rank, [])})
            for rank in job.ranks_of([*self.joiners])
        }
        if (one.step, one.positions, one.held) != (verdict, positions, held):
            raise Violation(f"step {verdict}, {positions}, {held}: {one}")
        if job.job.committed != verdict:
            raise Violation(f"step {verdict} is committed: {job.job.committed}")
        job.is_marked(one, "drain")

    def _links_break(self) -> None:
        """All see that the epoch ends, each in its own time: it is no news."""
        rank = self.chance.choice(self.job.ranks_of([*self.stays]))
        said = m.Interrupted(rank=rank, epoch=self.job.job.epoch, reason="reset by peer")
        self.job.hears((self.stays[rank // self.nproc], rank % self.nproc, said))
        self.job.follows({}, "they have left their epoch")

    def stood(self, positions: dict[Rank, m.Position]) -> list[Said]:
        epoch = self.job.epoch
        return [
            *((self.seats[r // self.nproc], r % self.nproc, its) for r, its in positions.items()),
            *(
                (n, None, m.VaultHeld(epoch=epoch, records=its))
                for n, its in self.held.items()
                if n in holding(self.job.job)
            ),
        ]

    def mix(self) -> tuple[dict[Rank, m.Position], Step]:
        """Where those who stay stood, and the last step that was made then."""
        job, chance = self.job, self.chance
        ranks, k = job.ranks_of([*self.stays]), Step(self.base + 1)
        in_gate, made, computes = (k - 1, k), (k, 0), (k - 1, 0)
        if self.verdict is not None:
            undone = [made, in_gate] if self.verdict == k else [computes]
            stood, verdict = {rank: chance.choice(undone) for rank in ranks}, self.verdict
        elif (how := chance.choice(self.mixes)) == "all in":
            safe = chance.random() < 0.5 or not self.joiners
            stood, verdict = dict.fromkeys(ranks, in_gate), Step(k if safe else k - 1)
        else:
            some = computes if how == "some not" else made
            stood = {rank: chance.choice((in_gate, some)) for rank in ranks}
            stood[chance.choice(ranks)] = some
            verdict = k if how == "some past" else Step(k - 1)
        return {
            r: m.Position(rank=r, epoch=job.epoch, committed=Step(c), gate=Step(g))
            for r, (c, g) in stood.items()
        }, verdict

    def records(self, verdict: Step) -> dict[MachineId, dict[Rank, list[Step]]]:
        """For the step behind it, of each rank that is gone, with one machine or several."""
        alive = sorted(holding(self.job.job) & self.job.job.machines.keys())
        held: dict[MachineId, dict[Rank, list[Step]]] = {n: {} for n in self.job.job.machines}
        for rank in self.job.ranks:
            first = Step(verdict + 1)
            with_it = self.chance.sample(alive, self.chance.randint(1, len(alive)))
            for name in with_it:
                held[name][Rank(rank)] = [Step(first - 1), first]
            without = [name for name in alive if name not in with_it]
            for name in without[:1]:
                held[name][Rank(rank)] = [Step(first - 1)]
        return held

    def comes_to_boundary(self, *, but: int = 0) -> None:
        job = self.job
        heard = job.hears_all(self.there(), "the boundary", but=but)
        self.parked |= {(name, fact.rank) for name, _, fact in heard if isinstance(fact, m.Parked)}
        if but:
            return
        orders = {name: order for name, order in job.orders(m.Switch)}
        job.follows(orders, "all are at the boundary")
        if {*orders} != {*self.joiners.values(), *self.seats.values()} & {*job.job.machines}:
            raise Violation(f"{self.seats}, {self.joiners} are to switch: {orders}")
        for name, order in orders.items():
            self._is_right(name, order)
        job.is_marked(self.one, "bind")
        if self.one.marks["verdict"] != job.said_us[m.AtBoundary]:
            raise Violation(f"all had come at {job.said_us}: {self.one}")

    def there(self) -> list[Said]:
        """What is yet to be said for all to be at the boundary."""
        parks = [s for s in self.job.park(self.joiners) if (s[0], s[2].rank) not in self.parked]
        return [*self.job.each(self.stays, m.AtBoundary, committed=self.verdict), *parks]

    def _is_right(self, name: MachineId, order: m.Switch) -> None:
        job, verdict = self.job, self.verdict
        assert verdict is not None
        moved = job.ranks_of([*self.joiners])
        if order.snapshot_every != (job.job.spec.snapshot_every or 0):
            raise Violation(f"all keep snapshots every so many steps: {order}")
        said = (
            order.epoch,
            order.committed,
            order.closing,
            order.back,
            order.files,
            order.diverged,
        )
        if said != (job.epoch, verdict, False, False, {}, []):
            raise Violation(f"{name} is told {order}; the last step is {verdict}")
        stay = [rank for rank in job.ranks_of([*self.stays]) if rank not in self.doubted]
        truth = {m.Source(rank, job.address(rank)) for rank in stay}
        if {*order.sources} != {*moved} or any({*its} != truth for its in order.sources.values()):
            raise Violation(f"{moved} are had from {truth}: {order.sources}")
        self.sources = {rank: [one.rank for one in its] for rank, its in order.sources.items()}
        vaults = {
            rank: {f"{n}:1" for n, its in self.held.items() if verdict + 1 in its.get(rank, [])}
            for rank in moved
        }
        if {rank: {*its} for rank, its in order.records.items()} != vaults:
            raise Violation(f"records of step {verdict + 1} are in {vaults}: {order.records}")
        after = {**self.seats, **self.joiners}
        its = job.ranks_of([slot for slot in after if name in (after[slot], self.seats[slot])])
        if {*order.buddies} != {*its}:
            raise Violation(f"{name} has ranks {its}, and is told of {order.buddies}")
        keep = {*after.values()} if len(after) > 1 else {*job.job.machines}
        for rank, vault in order.buddies.items():
            if vault not in {f"{one}:1" for one in keep if one != after[rank // self.nproc]}:
                raise Violation(f"{after} keep for each other, {name} is told {order.buddies}")
        self._are_further(name, order, after)

    def _are_further(self, name: MachineId, order: m.Switch, after: dict[int, MachineId]) -> None:
        """One more copy, where that is asked for and there is somebody else to keep it."""
        twice = self.job.job.spec.snapshot_copies > 1 and len(after) > 2
        if {*order.further} != ({*order.buddies} if twice else set()):
            raise Violation(f"{name} is told of other keepers, {twice}: {order}")
        for rank, vault in order.further.items():
            others = {*after.values()} - {after[rank // self.nproc]}
            if vault == order.buddies[rank] or vault not in {f"{one}:1" for one in others}:
                raise Violation(f"{vault} keeps one more copy of rank {rank}: {order}")

    def switches(self, *, but: int = 0) -> None:
        job = self.job
        loads = job.load(self.joiners, {rank: its[0] for rank, its in self.sources.items()})
        for at, said in enumerate(loads):
            if but and at >= len(loads) - but:
                break
            job.hears(said)
            job.follows({}, f"{said} is all that was said")
        if but:
            return
        if loads:
            job.is_marked(self.one, "state")
        if [*self.one.certificates] != [fact.certificate for _, _, fact in loads]:
            raise Violation(f"{loads} were had: {self.one.certificates}")
        after = {**self.seats, **self.joiners}
        job.hears_all(job.each(after, m.Switched), "the switch")
        job.follows(dict.fromkeys(after.values(), m.Go(epoch=job.epoch)), "all have switched")
        keep = {name for name, order in job.orders(m.KeepSnapshots) if order.now}
        needed = job.job.snapshot_every and self.joiners
        if keep != ({*after.values()} if needed else set()):
            raise Violation(f"{self.joiners} have no snapshots, {needed}: {job.told}")
        job.is_marked(self.one, "switchover")
        self._all_go()

    def _all_go(self) -> None:
        job, after = self.job, {**self.seats, **self.joiners}
        known = job.job
        if [*known.seats] != [*after.values()] or known.epoch != job.epoch or known.change:
            raise Violation(f"{after} have ranks in epoch {job.epoch}: {known.seats}")
        if any(known.machines[n].state is not MachineState.ACTIVE for n in after.values()):
            raise Violation(f"{after} train: {known.machines}")
        self.seats, self.joiners, self.parked, self.failing = after, {}, set(), None
        if self.verdict is not None:
            self.base, self.verdict = self.verdict, None

    def _commits(self, *, but: int = 0) -> None:
        """It is over with the first step of the last rank, and cost what the slowest says."""
        job, step = self.job, Step(self.base + 1)
        gaps = {rank: self.chance.randrange(150, 900) * MS for rank in job.ranks}
        median_us = self.chance.choice((100 * MS, 100 * MS, None))
        row = m.Row(step=step, at_us=0, values={})
        facts: list[Said] = [
            (
                self.seats[rank // self.nproc],
                rank % self.nproc,
                m.Committed(
                    rank=Rank(rank), epoch=job.epoch, rows=[row], first=True, gap_us=gap,
                    median_us=median_us,
                ),
            )
            for rank, gap in gaps.items()
        ]  # fmt: skip
        number, facts = self.one.number, self.chance.sample(facts, len(facts))
        for at, said in enumerate(facts[: len(facts) - but]):
            if self.one.outcome is not Outcome.OPEN:
                raise Violation(f"{facts[at:]} have yet to make a step: {self.one}")
            late = msgspec.structs.replace(said[2], epoch=Epoch(job.epoch - 1), gap_us=10**9)
            job.hears((said[0], said[1], late))
            job.hears(said)
            self.cost_ms = max(self.cost_ms, (said[2].gap_us - (median_us or 0)) / MS)
            self.base, self.tries = step, 0
        if but:
            return
        one = next(i for i in job.job.incidents if i.number == number)
        step_ms = None if median_us is None else 100.0
        if (one.outcome, one.downtime_ms, one.step_ms) != (Outcome.DONE, self.cost_ms, step_ms):
            raise Violation(f"{self.cost_ms} ms were lost: {one}")
        job.is_marked(one, "first_step")
        if job.job.committed != step or job.job.retries:
            raise Violation(f"step {step} is made: {job.job.committed}, {job.job.retries}")


def _breaks_and_mends(chance: random.Random) -> None:
    """Several times, and more breaks meanwhile."""
    course = Course(
        chance, snapshot_every=chance.choice((0, 5)), snapshot_copies=chance.choice((1, 2))
    )
    for _ in range(chance.randint(1, 2)):
        words, spare = f"w{course.job.now_us}", len(course.spare)
        seats = [*course.seats.values()]
        how = chance.choice(("loss", "loss", "crash", "link")) if spare else "link"
        most = {"loss": min(2, spare, len(seats) - 1), "crash": 1, "link": 0}[how]
        names = sorted(chance.sample(seats, chance.randint(1, most)) if most else [])
        course.breaks(Breach(how, names, words))
        course.mends()
        course.job.settles()


def _the_keeper_is_lost(chance: random.Random) -> None:
    """A standby, which has the records of a job of one machine: its ranks would wait for it."""
    course = Course(chance, sizes=((1, 2),), snapshot_every=0)
    ((keeper,),) = course.job.job.keepers.values()
    course.breaks(Breach("loss", [keeper], "it is gone"))
    course.troubles = 0
    course.mends()


def play(chance: random.Random) -> None:
    """One job."""
    often = _breaks_and_mends
    chance.choice((often, often, often, often, _the_keeper_is_lost))(chance)
