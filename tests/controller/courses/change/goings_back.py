# SPDX-License-Identifier: Apache-2.0
"""What one machine alone held is lost: all run the script again from the newest snapshots of all
ranks, wherever each still is; or the job ends where one is nowhere.
"""

import random

from courses.change.staged import Said, Staged
from trainmover.controller.change import options
from trainmover.controller.change.buddies import holding
from trainmover.controller.events import Lost, MachinesLost
from trainmover.controller.state import Incident, MachineState, Outcome, Stage
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

EVERY, CUT = 5, Step(5)
FOLDER = "/kept"


class Course:
    """kept: slot -> machine in whose vault its snapshots are, too; gone: slot that is vacant."""

    def __init__(self, chance: random.Random, *, alike: bool = False) -> None:
        self.chance = chance
        machines, standbys = chance.choice(((2, 1), (3, 2), (4, 2)))
        self.nproc = chance.choice((1, 1, 2))
        self.job = Staged(
            chance, machines=machines, standbys=standbys, nproc=self.nproc, wait_s=60,
            snapshot_every=EVERY,
        )  # fmt: skip
        self.job.alike = alike
        self.job.begins()
        self.seats = dict(enumerate(self.job.job.seats))
        self.kept = {slot: self.seats[(slot + 1) % machines] for slot in self.seats}
        self.made = Step(CUT + chance.randint(0, 4))

    @property
    def one(self) -> Incident:
        return self.job.job.incidents[-1]

    def has_cut(self) -> None:
        job = self.job
        facts: list[Said] = [
            (name, rank % self.nproc, self.snapped(rank, f"{self.kept[slot]}:1"))
            for slot, name in self.seats.items()
            for rank in job.ranks_of([slot])
        ]
        for said in self.chance.sample(facts, len(facts)):
            if job.orders(m.CutComplete):
                raise Violation(f"{said} is yet to come, and the cut is complete")
            job.hears(said)
        told = [name for name, order in job.orders(m.CutComplete) if order.step == CUT]
        if told != sorted(job.job.machines):
            raise Violation(f"all are told that the cut is complete: {told}")

    def snapped(self, rank: Rank, vault: str) -> m.Snapped:
        return m.Snapped(
            rank=rank, epoch=self.job.job.epoch, step=CUT, vault=vault, bytes=7, cost_us=10,
            step_us=100_000,
        )  # fmt: skip

    def loses(self, names: list[MachineId]) -> None:
        job = self.job
        job.goes_on()
        lost = [Lost(machine=name, why="it is gone", heard_us=job.now_us) for name in names]
        job.hear(MachinesLost(at_us=job.now_us, lost=lost))

    def drains(self) -> None:
        """All say where they stood; nobody has what the lost one had."""
        job = self.job
        stays = {
            slot: name
            for slot, name in self.seats.items()
            if name in job.job.machines and job.job.machines[name].state is MachineState.ACTIVE
        }
        records = {rank: [Step(self.made + 1)] for rank in map(Rank, job.ranks)}
        vaults: list[Said] = [
            (name, None, m.VaultHeld(epoch=job.epoch, records=records))
            for name in job.job.machines
            if name in holding(job.job)
        ]
        where = job.each(stays, m.Position, committed=self.made, gate=Step(0))
        job.hears_all([*vaults, *where], "where ranks stood")

    def all_go_back(self, why: str, beyond: tuple[MachineId, ...] = ()) -> None:
        """Who trains leaves its run, whose snapshot is nowhere else gives it to its own vault, and
        all join, in a new epoch. beyond: who was to join, and may have gone further already."""
        job, change = self.job, self.job.job.change
        trains = {name for name in self.seats.values() if name in job.job.machines}
        self.leaving = trains | {*beyond}
        epoch = job.epoch
        if change is None or not change.back or change.stage is not Stage.BOUNDARY:
            raise Violation(f"all go back: {change}")
        after = {int(slot): name for slot, name in change.joiners.items()}
        if {*after} != {*self.seats} or any(
            after[slot] != name for slot, name in self.seats.items() if name in trains
        ):
            raise Violation(f"all join, where they are: {change.joiners}")
        leave = {name: order.epoch for name, order in job.orders(m.Leave)}
        if leave != dict.fromkeys(self.leaving, epoch - 1):
            raise Violation(f"{self.leaving} leave epoch {epoch - 1}: {leave}")
        given = {name: (o.step, o.vaults) for name, o in job.orders(m.GiveSnapshots)}
        truth = {
            name: (CUT, dict.fromkeys(job.ranks_of([slot]), f"{name}:1"))
            for slot, name in self.seats.items()
            if name in trains and self.kept[slot] not in job.job.machines
        }
        if given != truth:
            raise Violation(f"only {truth} have what their keeper had: {given}")
        one, made = self.one, self.made - CUT
        said = (one.rung, one.step, one.redone, one.epoch, job.job.committed, one.outcome)
        if said != (2, CUT, made, epoch, CUT, Outcome.OPEN) or why not in one.why_rung:
            raise Violation(f"{made} steps are made again, {why!r}: {one}, {job.job.committed}")
        self.after = dict(sorted(after.items()))

    def leave(self) -> None:
        """Each runs as its ranks again once all its processes have left, and the vaults have what
        only they had."""
        job = self.job
        for slot, name in self.chance.sample([*self.after.items()], len(self.after)):
            job.goes_on()
            if name not in self.leaving:
                continue
            if self.kept[slot] not in job.job.machines and name == self.seats[slot]:
                for rank in job.ranks_of([slot]):
                    job.hears((name, rank % self.nproc, self.snapped(rank, f"{name}:1")))
            for local in range(self.nproc):
                if job.orders(m.Bind):
                    raise Violation(f"{name} has yet to leave: {job.told}")
                job.hears((name, local, m.Left()))
            bound = [(one, order.slot, order.epoch) for one, order in job.orders(m.Bind)]
            if bound != [(name, slot, job.epoch)]:
                raise Violation(f"{name} has left, and runs as slot {slot} again: {bound}")

    def park(self) -> dict[MachineId, m.Switch]:
        job = self.job
        job.hears_all(job.park(self.after), "the boundary")
        return dict(job.orders(m.Switch))

    def is_right(self, orders: dict[MachineId, m.Switch]) -> None:
        """Each takes its own snapshot, from its process or where it was put away."""
        job = self.job
        if {*orders} != {*self.after.values()}:
            raise Violation(f"{self.after} are to switch: {orders}")
        for slot, name in self.after.items():
            order, stays = orders[name], name == self.seats[slot]
            kept = self.kept[slot] if self.kept[slot] in job.job.machines else name
            ranks = job.ranks_of([slot])
            where = {r: [m.Source(r, f"{name}/{r % self.nproc}")] for r in ranks if stays}
            vaults = {rank: [f"{kept}:1"] for rank in ranks}
            truth = m.Switch(
                epoch=job.epoch, committed=CUT, sources=where, records=vaults, files={}, back=True,
                snapshot_every=EVERY, buddies=order.buddies,
            )  # fmt: skip
            if order != truth:
                raise Violation(f"{name} takes {truth}: {order}")

    def switch(self) -> None:
        job = self.job
        for said in job.load(self.after, {rank: rank for rank in map(Rank, job.ranks)}):
            job.hears(said)
        job.hears_all(job.each(self.after, m.Switched), "the switch")
        job.follows(dict.fromkeys(self.after.values(), m.Go(epoch=job.epoch)), "all have switched")
        now = [name for name, order in job.orders(m.KeepSnapshots) if order.now]
        if now != [*self.after.values()]:
            raise Violation(f"who has joined has no snapshot: {now}")
        if [*job.job.seats] != [*self.after.values()] or job.job.epoch != job.epoch:
            raise Violation(f"{self.after} train in epoch {job.epoch}: {job.job.seats}")
        row = m.Row(step=Step(job.job.committed + 1), at_us=0, values={})
        for name, local, fact in job.each(self.after, m.Committed, rows=[row], first=True):
            if self.one.outcome is not Outcome.OPEN:
                raise Violation(f"{name} has yet to make a step: {self.one}")
            job.hears((name, local, fact))
        if self.one.outcome is not Outcome.DONE:
            raise Violation(f"all have made a step: {self.one}")
        if options.way_of(self.one) != options.BACK:
            raise Violation(f"all went back: {options.way_of(self.one)}")


def _to_the_cut(chance: random.Random) -> None:
    """Once, or once more while they do, or after that."""
    course = Course(chance)
    job = course.job
    course.has_cut()
    slot = chance.choice([*course.seats])
    course.loses([course.seats[slot]])
    course.drains()
    course.all_go_back(f"no other rank holds the state of rank {slot * course.nproc}")
    course.leave()
    how = chance.choice(("well", "well", "link", "unusable"))
    orders = course.park()
    course.is_right(orders)
    if how == "well":
        course.switch()
        return
    rank = Rank(chance.choice([*job.ranks]))
    unusable = CUT if how == "unusable" else Step(0)
    said = m.Interrupted(rank=rank, epoch=job.epoch, reason="reset by peer", unusable=unusable)
    job.hears((course.after[rank // job.nproc], rank % job.nproc, said))
    course.drains()
    if how == "unusable":
        job.ends("no rank is left that could give its state")
        job.ends(f"after step {course.made}: there was no snapshot of all ranks yet")
        return
    change = job.job.change
    left = {name for name, _ in job.orders(m.Leave)}
    if change is None or not change.back or left:
        raise Violation(f"all who run the script may have stayed behind it: {left}, {change}")


def _beyond(chance: random.Random) -> None:
    """Those who held the same have parted, as a joiner finds that was told their step already."""
    course = Course(chance, alike=True)
    job = course.job
    course.has_cut()
    slot = chance.choice([*course.seats])
    course.loses([course.seats[slot]])
    course.drains()
    change = job.job.change
    assert change is not None
    joiner = next(iter(change.joiners.values()))
    stays = {at: name for at, name in course.seats.items() if at != slot}
    there = job.each(stays, m.AtBoundary, committed=course.made)
    job.hears_all([*there, *job.park({slot: joiner})], "the boundary")
    rank = Rank(slot * course.nproc)
    holders = {one: f"{one}" for one in job.ranks_of([*stays])}
    said = m.Unproven(rank=rank, epoch=job.epoch, holders=holders, unlike=[*holders])
    job.hears((joiner, 0, said))
    course.drains()
    course.all_go_back("have parted since", (joiner,))
    course.leave()
    course.is_right(course.park())
    course.switch()


def _two_are_lost(chance: random.Random) -> None:
    """A machine, and the one that kept what it had."""
    course = Course(chance)
    course.has_cut()
    slot = chance.choice([*course.seats])
    spare = len(course.job.names) - len(course.seats)
    names = [course.seats[slot], course.kept[slot]]
    if spare < 2 or len(course.seats) < 3:
        return
    course.loses(names)
    course.drains()
    rank = min(
        course.job.ranks_of([s for s, name in course.seats.items() if name in names and (
            course.kept[s] in names
        )])
    )  # fmt: skip
    course.job.ends(f"the snapshot of rank {rank} was lost as well")
    course.job.ends("it is gone, and no other rank holds the state of rank")


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice((_to_the_cut, _to_the_cut, _beyond, _two_are_lost))(chance)
