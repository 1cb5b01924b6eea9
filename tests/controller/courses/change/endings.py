# SPDX-License-Identifier: Apache-2.0
"""Scripts end, one rank's after the other's, and machines are lost meanwhile: whoever is through
takes part as long as he is there, nobody has to take his place, and the job ends with the last.
"""

import random

from courses.change.staged import Said, Staged
from trainmover.controller.change.buddies import holding
from trainmover.controller.effects import Fence
from trainmover.controller.events import Lost, MachinesLost
from trainmover.controller.state import Incident, Outcome, Phase
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

LAST = Step(9)


class Course:
    """through: ranks whose script has ended; left: whose process is gone, too. seats: slot ->
    machine."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        machines, standbys = chance.choice(((2, 1), (3, 1), (4, 2)))
        self.nproc = chance.choice((1, 1, 2))
        self.job = Staged(chance, machines=machines, standbys=standbys, nproc=self.nproc, wait_s=60)
        self.job.begins()
        self.seats = dict(enumerate(self.job.job.seats))
        self.through: set[Rank] = set()
        self.first = True
        self.left: set[Rank] = set()

    @property
    def one(self) -> Incident:
        return self.job.job.incidents[-1]

    @property
    def here(self) -> dict[int, MachineId]:
        """Who still has ranks."""
        known = self.job.job.machines
        return {slot: name for slot, name in self.seats.items() if name in known}

    def said_by(self, rank: Rank, kind: type[m.WorkerFact], **fields: object) -> Said:
        slot, local = divmod(rank, self.nproc)
        return self.seats[slot], local, kind(rank=rank, **fields)

    def finishes(self, rank: Rank) -> None:
        """All are told with the first; all are told to leave with the last."""
        job, first, self.first = self.job, self.first, False
        self.through.add(rank)
        job.hears(self.said_by(rank, m.Finished, step=LAST, code=0, digest="d", attached=True))
        ending = dict(job.orders(m.Ending))
        truth = dict.fromkeys(self.here.values(), m.Ending(rank=rank, step=LAST))
        if ending != (truth if first and len(job.ranks) > 1 else {}):
            raise Violation(f"the first script has ended, {first}: {ending}")
        all_are = len(self.through) == len(job.ranks)
        if {name for name, _ in job.orders(m.Exit)} != (
            {*self.here.values()} if all_are else set()
        ):
            raise Violation(f"{self.through} have ended: {job.told}")
        if (job.job.phase is Phase.ENDING) is not all_are or job.job.committed != LAST:
            raise Violation(f"{self.through} have ended: {job.job.phase}, {job.job.committed}")

    def leaves(self, rank: Rank) -> None:
        """Its process does; the job ends with the last of them."""
        job, (slot, local) = self.job, divmod(rank, self.nproc)
        self.left.add(rank)
        name = self.seats[slot]
        pid = job.job.machines[name].pids[local]
        job.hears((name, None, m.WorkerExited(local_rank=local, pid=pid, code=0)))
        self.may_be_over()

    def may_be_over(self) -> None:
        job = self.job
        left = {*job.ranks_of([*self.here])} - self.left
        if left or len(self.through) < len(job.ranks):
            if job.end() is not None:
                raise Violation(f"{left} are still there: {job.end()}")
            return
        end = job.end()
        if end is None or end.code or end.text:
            raise Violation(f"all have left: {end}")

    def loses(self, name: MachineId) -> None:
        job = self.job
        job.goes_on()
        lost = Lost(machine=name, why="it is gone", heard_us=job.now_us)
        job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
        if [one.machine for one in job.told if isinstance(one, Fence)] != [name]:
            raise Violation(f"{name} is to be shut out: {job.told}")

    def recovers(self, slot: int) -> None:
        """Whoever is through and still there is asked like all others, and gives his state."""
        job, change = self.job, self.job.job.change
        if change is None or {*change.joiners} != {slot}:
            raise Violation(f"slot {slot} is to be taken over: {change}")
        joins = {slot: change.joiners[next(iter(change.joiners))]}
        stays = {at: name for at, name in self.here.items() if at != slot}
        where = [
            said
            for said in job.each(stays, m.Position, committed=LAST, gate=Step(0), finished=True)
            if said[2].rank not in self.left
        ]
        records = {rank: [Step(LAST + 1)] for rank in map(Rank, job.ranks)}
        vaults: list[Said] = [
            (name, None, m.VaultHeld(epoch=job.epoch, records=records))
            for name in job.job.machines
            if name in holding(job.job)
        ]
        job.hears_all([*where, *vaults], "where ranks stood")
        job.follows(
            dict.fromkeys(stays.values(), m.Verdict(epoch=job.epoch, committed=LAST)),
            "all have said where they stood",
        )
        there = [
            said
            for said in job.each(stays, m.AtBoundary, committed=LAST)
            if said[2].rank not in self.left
        ]
        job.hears_all([*there, *job.park(joins)], "the boundary")
        orders = dict(job.orders(m.Switch))
        if {*orders} != {*stays.values(), *joins.values()}:
            raise Violation(f"{stays}, {joins} are to switch: {orders}")
        sources = {one.rank for order in orders.values() for one in order.sources[Rank(
            slot * self.nproc
        )]}  # fmt: skip
        if not all(order.closing for order in orders.values()) or sources & self.left:
            raise Violation(f"{self.through} are through, {self.left} have left: {orders}")
        after = {**stays, **joins}
        switched = [s for s in job.each(after, m.Switched) if s[2].rank not in self.left]
        job.hears_all(switched, "the switch")
        job.follows(dict.fromkeys(after.values(), m.Go(epoch=job.epoch)), "all have switched")
        self.seats = {**self.seats, **joins}
        if self.one.outcome is not Outcome.OPEN:
            raise Violation(f"{joins} have yet to make their last steps: {self.one}")


def play(chance: random.Random) -> None:
    """One job, to its end."""
    course = Course(chance)
    job = course.job
    ranks = chance.sample([*map(Rank, job.ranks)], len(job.ranks))
    loss, leave = chance.randint(1, len(ranks) - 1), chance.random() < 0.4
    for rank in ranks[:loss]:
        course.finishes(rank)
        if leave and chance.random() < 0.5:
            course.leaves(rank)
    slot = chance.choice([*course.seats])
    slots = {*job.ranks_of([slot])}
    needed = not slots <= course.through
    can_be = any(r not in course.left for r in job.ranks if r // course.nproc != slot)
    if chance.random() < 0.7 and can_be:
        epoch = job.epoch
        course.loses(course.seats[slot])
        if (job.epoch > epoch) is not needed:
            raise Violation(f"{course.through} are through, slot {slot} is lost: {job.told}")
        if needed:
            course.left -= slots
            course.recovers(slot)
            course.through -= slots
    for rank in [one for one in ranks if one not in course.through]:
        course.finishes(rank)
    if job.job.incidents and course.one.outcome is not Outcome.DONE:
        raise Violation(f"all scripts have ended: {course.one}")
    gone = [one for one in course.seats.values() if one not in job.job.machines]
    left = [
        r for r in ranks if r not in course.left and course.seats[r // course.nproc] not in gone
    ]
    for rank in left:
        course.leaves(rank)
