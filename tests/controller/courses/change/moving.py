# SPDX-License-Identifier: Apache-2.0
"""A move, stage by stage, as it should go: who is told what when, and what is said of it."""

import random

from courses.change.staged import MEMBERSHIP, MS, Said, Staged
from trainmover.controller.effects import Answer, Fence, Send
from trainmover.controller.events import DrainRequested, Lost, MachinesLost, MoveRequested
from trainmover.controller.state import Incident, Kind, MachineState, Outcome, Phase
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

STAGES = ("bind", "prepare", "pause", "switch")


class Moving:
    """leaves, joins: slot -> machine. at: the stage that is under way; said: of what it needs."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        machines, standbys = chance.choice(((2, 1), (2, 2), (3, 2), (4, 3), (1, 1)))
        self.nproc = chance.choice((1, 1, 2))
        self.job = Staged(chance, machines=machines, standbys=standbys, nproc=self.nproc, wait_s=60)
        self.job.begins()
        self.seats = dict(enumerate(self.job.job.seats))
        self.leaves: dict[int, MachineId] = {}
        self.joins: dict[int, MachineId] = {}
        self.at = STAGES[0]
        self.said: list[Said] = []
        self.step = Step(4)

    @property
    def after(self) -> dict[int, MachineId]:
        return {**self.seats, **self.joins}

    @property
    def stays(self) -> dict[int, MachineId]:
        return {slot: name for slot, name in self.seats.items() if slot not in self.joins}

    @property
    def one(self) -> Incident:
        return next(i for i in reversed(self.job.job.incidents) if i.kind is Kind.MOVE)

    @property
    def named(self) -> str:
        """Machines whose ranks move, as people read it."""
        return ", ".join(self.leaves.values())

    # --- as it should go --------------------------------------------------------------------------

    def begins(self) -> None:
        job, chance = self.job, self.chance
        spare = len(job.names) - len(self.seats)
        count = 2 if spare > 1 and len(self.seats) > 2 and chance.random() < 0.3 else 1
        slots = chance.sample([*self.seats], count)
        self.leaves = {slot: self.seats[slot] for slot in slots}
        reason = chance.choice(("", "its fan is loud"))
        job.goes_on()
        if count > 1:
            job.hear(
                DrainRequested(
                    at_us=job.now_us, request="r", machines=[*self.leaves.values()], reason=reason
                )
            )
        else:
            job.hear(
                MoveRequested(at_us=job.now_us, request="r", machine=self.named, reason=reason)
            )
        change = job.job.change
        if change is None or {*change.joiners} != {*slots}:
            raise Violation(f"{self.leaves} are to be moved: {change}")
        self.joins = {int(slot): name for slot, name in change.joiners.items()}
        if len({*self.joins.values()}) < count or {*self.joins.values()} & {*self.seats.values()}:
            raise Violation(f"{self.leaves} are to be moved to standbys: {self.joins}")
        bound = {name: (order.slot, order.epoch) for name, order in job.orders(m.Bind)}
        if bound != {name: (slot, job.epoch) for slot, name in self.joins.items()}:
            raise Violation(f"{self.joins} are to run as what they become: {bound}")
        if others := [one for one in job.told if _is_other(one)]:
            raise Violation(f"the job is to train on: {others}")
        one, (first, *more) = self.one, slots
        said = (one.machine, one.joiner, one.further, one.ranks, one.rung, one.epoch, one.outcome)
        truth = (
            self.leaves[first], self.joins[first],
            tuple((self.leaves[slot], self.joins[slot]) for slot in more),
            tuple(rank for slot in slots for rank in job.ranks_of([slot])),
            0, job.epoch, Outcome.OPEN,
        )  # fmt: skip
        if said != truth or reason not in one.cause or one.request != "r":
            raise Violation(f"{truth}, {reason!r}: {one}")
        if one.marks != {"begun": job.now_us} or job.job.epoch != job.epoch - 1:
            raise Violation(f"{self.leaves} move since {job.now_us}: {one}, {job.job.epoch}")

    def facts(self) -> list[Said]:
        """What the stage under way needs."""
        job = self.job
        if self.at == "bind":
            return job.park(self.joins)
        if self.at == "prepare":
            return job.each(self.after, m.Prepared)
        if self.at == "pause":
            return job.each(self.seats, m.AtBoundary, committed=self.step)
        return job.each(self.after, m.Switched)

    def goes(self, until: str = "") -> None:
        """Stage by stage, until that one."""
        job = self.job
        while self.at != until:
            if self.at == "switch":
                self.loads()
            job.hears_all([one for one in self.facts() if one not in self.said], self.at)
            self.said = []
            if self.at == "bind":
                self._all_prepare()
            elif self.at == "prepare":
                order = m.PauseAt(epoch=job.epoch)
                job.follows(dict.fromkeys(self.seats.values(), order), "all are prepared")
                self.step = Step(self.step + self.chance.randint(0, 3))
            elif self.at == "pause":
                self._all_switch()
            else:
                self._all_go()
                return
            job.is_marked(self.one, self.at)
            self.at = STAGES[STAGES.index(self.at) + 1]

    def _all_prepare(self) -> None:
        job = self.job
        orders = dict(job.orders(m.Prepare))
        job.follows({**orders}, "joiners are parked")
        if {*orders} != {*self.after.values()}:
            raise Violation(f"{self.after} are to prepare: {orders}")
        for name, order in orders.items():
            ranks = job.ranks_of([slot for slot, one in self.joins.items() if one == name])
            truth = {rank: m.Source(rank, job.address(rank)) for rank in ranks}
            if order.epoch != job.epoch or order.early != truth:
                raise Violation(f"{name} may have {truth} beforehand: {order}")

    def _all_switch(self) -> None:
        job = self.job
        orders = dict(job.orders(m.Switch))
        job.follows({**orders}, "all have paused")
        if {*orders} != {*self.after.values(), *self.seats.values()}:
            raise Violation(f"{self.after} and {self.leaves} switch: {orders}")
        stay, moved = job.ranks_of([*self.stays]), job.ranks_of([*self.joins])
        for name, order in orders.items():
            said = (order.epoch, order.committed, order.records, order.closing, order.back)
            if said != (job.epoch, self.step, {}, False, False):
                raise Violation(f"{name} is told {order}; the last step is {self.step}")
            for rank in moved:
                first, *more = order.sources[rank]
                if first != m.Source(rank, job.address(rank)):
                    raise Violation(f"rank {rank} itself has its state: {order.sources}")
                if {*more} != {m.Source(one, job.address(one)) for one in stay}:
                    raise Violation(f"ranks {stay} have that of {rank}, too: {order.sources}")
        if {*next(iter(orders.values())).sources} != {*moved} or self.one.step != self.step:
            raise Violation(f"{moved} move after step {self.step}: {orders}, {self.one}")
        if job.job.committed != self.step:
            raise Violation(f"all have made step {self.step}: {job.job.committed}")

    def loads(self) -> None:
        loads = self.job.load(self.joins, {rank: rank for rank in map(Rank, self.job.ranks)})
        for said in loads:
            self.job.hears(said)
            self.job.follows({}, f"{said} is all that was said")
        self.job.is_marked(self.one, "state")
        if [*self.one.certificates] != [fact.certificate for _, _, fact in loads]:
            raise Violation(f"{loads} were had: {self.one.certificates}")

    def _all_go(self) -> None:
        job = self.job
        go: dict[MachineId, m.Order] = dict.fromkeys(self.after.values(), m.Go(epoch=job.epoch))
        go |= dict.fromkeys(self.leaves.values(), m.Leave(epoch=job.epoch))
        job.follows(go, "all have switched")
        job.is_marked(self.one, "switchover")
        if [*job.job.seats] != [*self.after.values()] or job.job.epoch != job.epoch:
            raise Violation(f"{self.after} have ranks in epoch {job.epoch}: {job.job.seats}")
        states = {name: job.job.machines[name].state for name in job.job.machines}
        if any(states[name] is not MachineState.ACTIVE for name in self.after.values()):
            raise Violation(f"{self.after} train: {states}")
        if any(states[name] is not MachineState.LEAVING for name in self.leaves.values()):
            raise Violation(f"{self.leaves} leave: {states}")

    def is_over(self) -> None:
        """With the first step of the last rank; then who asked is told."""
        job = self.job
        gaps = {rank: self.chance.randrange(150, 900) * MS for rank in job.ranks}
        cost = max(gaps.values()) // MS - 100
        ranks = self.chance.sample([*job.ranks], len(job.ranks))
        for rank in ranks:
            if job.other() or self.one.outcome is not Outcome.OPEN:
                raise Violation(f"rank {rank} has yet to make a step: {job.told}, {self.one}")
            job.gap_us = gaps[rank] + 1000 * rank
            job.goes_on()
            job.step = self.step
            job.commits(self.after[rank // self.nproc], Rank(rank), job.job.epoch)
        pairs = ", ".join(f"{self.leaves[slot]} -> {self.joins[slot]}" for slot in self.leaves)
        moved = [rank for slot in self.leaves for rank in job.ranks_of([slot])]
        plural = "s" * (len(moved) > 1)
        self.is_answered(
            f"{pairs} after step {self.step}: pause {cost} ms; "
            f"rank{plural} {', '.join(map(str, moved))} kept.",
            ok=True,
        )
        if self.one.outcome is not Outcome.DONE or self.one.downtime_ms != cost:
            raise Violation(f"{cost} ms were lost: {self.one}")
        job.settles()
        free = [job.job.machines[name].state for name in self.leaves.values()]
        if any(state is not MachineState.WARM for state in free) and len(self.leaves) == 1:
            raise Violation(f"{self.leaves} stand by: {free}")

    # --- as it may go -----------------------------------------------------------------------------

    def is_answered(self, words: str, *, ok: bool) -> None:
        said = [one for one in self.job.told if isinstance(one, Answer)]
        if (
            len(said) != 1
            or (said[0].request, said[0].ok) != ("r", ok)
            or words not in said[0].text
        ):
            raise Violation(f"{words!r}, {ok}, is to be answered: {said}")
        if self.one.request or (said[0].incident != self.one.number):
            raise Violation(f"it was answered: {said}, {self.one}")

    def is_cancelled(self, why: str, outcome: Outcome, gone: set[MachineId]) -> None:
        """All train on, and who was to join leaves what it has begun."""
        job = self.job
        orders: dict[MachineId, m.Order] = dict.fromkeys(
            self.seats.values(), m.Discard(epoch=job.epoch)
        )
        for name in {*self.joins.values()} - gone:
            orders[name] = m.Leave(epoch=job.epoch)
        job.follows(orders, why)
        verb = "were" if len(self.leaves) > 1 else "was"
        self.is_answered(f"{self.named} {verb} not moved: {why}", ok=False)
        if (self.one.outcome, job.job.change) != (outcome, None) or why not in self.one.note:
            raise Violation(f"{why}, {outcome}: {self.one}, {job.job.change}")
        if [*job.job.seats] != [*self.seats.values()] or job.job.phase is not Phase.RUNNING:
            raise Violation(f"all train on: {job.job.seats}, {job.job.phase}")
        known = {name: job.job.machines[name].state for name in orders if name not in gone}
        left = {name for name, state in known.items() if state is MachineState.LEAVING}
        if left != {*self.joins.values()} - gone:
            raise Violation(f"{self.joins} leave what they have begun: {known}")

    def says_some(self) -> None:
        facts = self.facts()
        self.said = self.job.hears_all(facts, self.at, but=self.chance.randint(1, len(facts)))

    def loses(self, *names: MachineId) -> None:
        job = self.job
        job.goes_on()
        lost = [
            Lost(machine=name, why="its link has ended", heard_us=job.now_us - 700)
            for name in names
        ]
        job.hear(MachinesLost(at_us=job.now_us, lost=lost))
        if [one.machine for one in job.told if isinstance(one, Fence)] != [*names]:
            raise Violation(f"{names} are to be shut out: {job.told}")


def _is_other(one: object) -> bool:
    is_order = isinstance(one, Send) and isinstance(one.order, MEMBERSHIP)
    return is_order and not isinstance(one.order, m.Bind)  # type: ignore[attr-defined]
