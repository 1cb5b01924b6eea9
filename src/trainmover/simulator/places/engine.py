# SPDX-License-Identifier: Apache-2.0
"""An engine that starts machines of a world: slow, denying now and then, and not always true.

It asks for the job's wants as an adapter does, and answers as one does. What it gets wrong is by a
chance of its own, so that a world without an engine is what it was.
"""

import random
from typing import TYPE_CHECKING

from trainmover.controller.events import (
    EVENTS,
    EngineNoticed,
    Granted,
    MachinesDenied,
    MachinesGranted,
)
from trainmover.controller.policies.capacity.known import Denial, NoticeKind, Want
from trainmover.ids import MachineId

if TYPE_CHECKING:
    from trainmover.simulator.world import World

SECOND = 1_000_000
LOOK_US = 300_000
LEAVES_US = 5_000_000
"""From a notice to when the machine is taken away."""


class Engine:
    """errs: how often an answer is late, wrong, or of a machine that is taken away."""

    def __init__(self, world: "World", errs: float) -> None:
        self.world, self.errs = world, errs
        self.random = random.Random(f"engine {world.seed}")
        self.begun: dict[MachineId, int] = {}  # Name -> the try that it was begun at.
        self.running: dict[MachineId, str] = {}  # Name -> its node.
        self.nodes = 0
        self.counts: dict[str, int] = {}
        world.at(0, self._look)

    @property
    def takes(self) -> bool:
        """Whether it has taken a machine away."""
        return bool(self.counts.keys() & {"taken", "preempt"})

    @property
    def errs_now(self) -> bool:
        """Whether this answer is to be a bad one."""
        return self.random.random() < self.errs

    def _look(self) -> None:
        """Take up what is wanted, and back what is not held any more."""
        world = self.world
        if world.ended is not None:
            return
        world.at(LOOK_US, self._look)
        if world.host is None or world.host.is_stopped or world.host.control.over is not None:
            return
        capacity = world.host.job.capacity
        wanted = {name for want in capacity.wants.values() for name in want.names}
        held = {name for name, grant in capacity.grants.items() if grant.returned is None}
        for want in list(capacity.wants.values()):
            self._take_up(want)
        for name in [name for name in self.begun if name not in wanted | held]:
            del self.begun[name]
        for name in [name for name in self.running if name not in wanted | held]:
            self._take_back(name)
        if self.errs and self.errs_now and self.running:
            self._disturb(self.random.choice(sorted(self.running)))

    def _take_up(self, want: Want) -> None:
        fresh = [name for name in want.names if self.begun.get(name, 0) < want.tries]
        if not fresh or want.denied:
            return
        for name in fresh:
            self.begun[name] = want.tries
        if self.errs_now:
            self._count("denied")
            self._say(MachinesDenied(at_us=self._now(), want=want.number, why=Denial.FULL,
                                     retry_ms=self.random.randint(1, 4000)))  # fmt: skip
            return
        for name in fresh:
            slow = 20 if self.errs_now else 1
            delay_us = slow * self.random.randint(1_000, 400_000)
            self.world.at(delay_us, self._start, name, want.standby, want.tries)

    def _start(self, name: MachineId, standby: bool, tries: int) -> None:
        if self.begun.get(name) != tries or name in self.running:
            return
        self.nodes += 1
        node = f"node{self.nodes}"
        phantom = self.errs_now
        if not phantom:
            self.running[name] = node
            self.world.add(standby=standby, name=name)
        else:
            self.world.at(self.random.randint(10_000, 20 * SECOND), self._never_came, name)
        self._count("phantom" if phantom else "granted")
        late_us = self.random.randint(0, 2_000_000) if self.errs_now else 0
        self.world.at(late_us, self._grant, name, node)

    def _never_came(self, name: MachineId) -> None:
        """What was granted has ended before it did anything."""
        self._say(EngineNoticed(at_us=self._now(), machine=name, kind=NoticeKind.GONE))

    def _grant(self, name: MachineId, node: str) -> None:
        if self.errs_now and self.running:
            self._count("twice")
            node = self.random.choice(sorted(self.running.values()))
        machines = [Granted(machine=name, node=node)]
        if self.errs_now:
            self._count("unwanted")
            machines.append(Granted(machine=MachineId(f"x{self.nodes}"), node=f"x{self.nodes}"))
        self._say(MachinesGranted(at_us=self._now(), machines=machines))
        if self.errs_now:
            self._say(MachinesGranted(at_us=self._now(), machines=machines))

    def _disturb(self, name: MachineId) -> None:
        """Take a machine away, with notice or without; or only say so."""
        how = self.random.choice(("taken", "preempt", "drain", "lie"))
        self._count(how)
        if how == "taken":
            self.world.boxes[name].die(silent=self.random.random() < 0.5)
            self.world.befell("notice")
        elif how == "lie":
            self._say(EngineNoticed(at_us=self._now(), machine=name, kind=NoticeKind.GONE))
        else:
            kind = NoticeKind(how)
            left_ms = LEAVES_US // 1000
            self._say(EngineNoticed(at_us=self._now(), machine=name, kind=kind, left_ms=left_ms))
            if kind is NoticeKind.PREEMPT:
                self.world.at(LEAVES_US, self._take_back, name)

    def _take_back(self, name: MachineId) -> None:
        """End what runs there: one that was released goes by itself."""
        self.running.pop(name, None)
        self.begun.pop(name, None)
        box = self.world.boxes.get(name)
        if box is not None:
            box.die(silent=False)

    def _say(self, event: EVENTS) -> None:
        if self.world.host is not None:
            self.world.host.request(event)

    def _now(self) -> int:
        host = self.world.host
        return host.now if host is not None else 0

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
