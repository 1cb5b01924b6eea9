# SPDX-License-Identifier: Apache-2.0
"""Machines in racks, as a job begins: whom each has keep its records and snapshots, so that no rack
that is lost takes both with it."""

import random
from collections import Counter

from trainmover.controller.decide import decide
from trainmover.controller.effects import Effect, Send
from trainmover.controller.events import CordonRequested, MachineJoined, WorkerSaid
from trainmover.controller.state import Job
from trainmover.ids import MachineId
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation


class Course:
    """domain: machine -> what it would be lost together with: its rack, or its host."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.machines, self.racks = chance.choice(
            ((1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (4, 2), (6, 3), (6, 2), (7, 3), (5, 1))
        )
        self.standbys, self.copies = chance.choice((0, 1, 3)), chance.choice((1, 2))
        self.nproc = chance.choice((1, 2))
        spec = m.JobSpec(
            run_id="keeps", argv=[], machines=self.machines, standbys=self.standbys,
            nproc=self.nproc, snapshot_copies=self.copies,
        )  # fmt: skip
        self.job, self.told = Job(spec), list[Effect]()
        names = [MachineId(f"m{n + 1}") for n in range(self.machines + self.standbys)]
        self.seats, self.spare = names[: self.machines], names[self.machines :]
        racked, even = chance.random() < 0.7, chance.random() < 0.5
        self.domain = {
            name: f"r{at % self.racks if even else chance.randrange(self.racks)}"
            for at, name in enumerate(names)
        }
        for name in names:
            where = self.domain[name]
            host, rack = (name, where) if racked else (where, "")
            self.hear(
                MachineJoined(
                    at_us=1, machine=name, standby=name in self.spare, vault=f"{name}:1", host=host,
                    rack=rack,
                )
            )  # fmt: skip
        self.cordoned = chance.sample(self.spare, min(len(self.spare), chance.choice((0, 1))))
        for name in self.cordoned:
            self.hear(CordonRequested(at_us=1, request="c", machine=name))
        for name in names:
            for local in range(self.nproc):
                up = m.WorkerUp(pid=local + 1, address=f"{name}/{local}", torch="2", version="1")
                self.hear(WorkerSaid(at_us=2, machine=name, local_rank=local, fact=up))

    def hear(self, event: MachineJoined | CordonRequested | WorkerSaid) -> None:
        self.job, effects = decide(self.job, event)
        self.told += effects

    def orders(self) -> dict[MachineId, m.RunRank]:
        sent = [one for one in self.told if isinstance(one, Send)]
        return {one.machine: one.order for one in sent if isinstance(one.order, m.RunRank)}

    def keeper_of(self, name: MachineId, vaults: set[str]) -> MachineId:
        """All ranks of a machine have the same one."""
        if len(vaults) != 1:
            raise Violation(f"one machine keeps what {name} has: {vaults}")
        return MachineId(next(iter(vaults)).removesuffix(":1"))


def play(chance: random.Random) -> None:
    """One job."""
    course = Course(chance)
    orders = course.orders()
    if {*orders} != {*course.seats}:
        raise Violation(f"{course.seats} begin: {orders}")
    keeper = {}
    for name, order in orders.items():
        ranks = {*course.job.spec.ranks(order.slot)}
        if {*order.buddies} != ranks or not {*order.further} <= ranks:
            raise Violation(f"{name} is told of its own ranks: {order}")
        keeper[name] = course.keeper_of(name, {*order.buddies.values()})
    if course.machines == 1:
        _is_a_standby(course, keeper[course.seats[0]])
        return
    _are_elsewhere(course, keeper)
    for name, order in orders.items():
        _is_one_more(course, name, keeper[name], {*order.further.values()})


def _is_a_standby(course: Course, keeper: MachineId) -> None:
    """Of a job of one machine: one that may take ranks, elsewhere if there is one."""
    may_be = [n for n in course.spare if n not in course.cordoned] or course.spare
    own = course.domain[course.seats[0]]
    elsewhere = [name for name in may_be if course.domain[name] != own]
    if keeper not in (elsewhere or may_be or course.seats):
        raise Violation(f"{elsewhere or may_be} may keep for {course.seats}: {keeper}")


def _are_elsewhere(course: Course, keeper: dict[MachineId, MachineId]) -> None:
    """And as evenly as racks are."""
    domain = course.domain
    sizes = Counter(domain[name] for name in course.seats)
    for name, its in keeper.items():
        same = len(sizes) > 1 and domain[its] == domain[name]
        if its == name or its not in course.seats or same:
            raise Violation(f"{its} keeps for {name}: {domain}")
    if len({*sizes.values()}) == 1 and len({*keeper.values()}) < len(keeper):
        raise Violation(f"racks are alike, and each keeps for one other: {keeper}, {domain}")


def _is_one_more(course: Course, name: MachineId, keeper: MachineId, further: set[str]) -> None:
    """In a third rack, if there is one; else in another than its own, if there is."""
    others = [one for one in course.seats if one not in (name, keeper)]
    if course.copies < 2 or not others:
        if further:
            raise Violation(f"{name} is to have one copy: {further}")
        return
    one, domain = course.keeper_of(name, further), course.domain
    own = [other for other in others if domain[other] != domain[name]]
    third = [other for other in own if domain[other] != domain[keeper]]
    if one not in (third or own or others):
        raise Violation(f"{one} keeps one more copy for {name}, beside {keeper}: {domain}")
