# SPDX-License-Identifier: Apache-2.0
"""What is true in a world, whatever the controller believes: who is well, and since when.

It looks every tenth of a second: ask for no shorter while than that.
"""

from typing import TYPE_CHECKING

from trainmover.ids import MachineId
from trainmover.simulator.places.network import CONTROLLER

if TYPE_CHECKING:
    from trainmover.simulator.places.machines import Box
    from trainmover.simulator.ranks.workers import Worker
    from trainmover.simulator.world import World

LOOK_US = 100_000
NEVER_US = -(10**12)


class Truth:
    """changed_us: when an outage last began or ended."""

    def __init__(self, world: "World") -> None:
        self.changed_us = 0
        self._world = world
        self._ill_us: dict[int, int] = {}
        self._apart_us: dict[MachineId, int] = {}
        self._cut_us: dict[MachineId, int] = {}
        self._outages: object = None
        world.at(LOOK_US, self._look)

    def _look(self) -> None:
        world = self._world
        for worker in world.workers():
            if not executes(worker):
                self._ill_us[worker.pid] = world.now
        for name, box in world.boxes.items():
            if not stands_well(world, box):
                self._apart_us[name] = world.now
            if not world.network.reach(name, CONTROLLER):
                self._cut_us[name] = world.now
        outages = _outages(world)
        if outages != self._outages:
            self._outages, self.changed_us = outages, world.now
        world.at(LOOK_US, self._look)

    def struck(self) -> None:
        """Something has gone wrong now."""
        self.changed_us = self._world.now

    def executes_for_us(self, worker: "Worker") -> int:
        """Return for how long the process has executed its script; 0: it does not."""
        if not executes(worker):
            return 0
        return self._world.now - self._ill_us.get(worker.pid, NEVER_US)

    def well_for_us(self, box: "Box") -> int:
        """Return for how long the machine was there for its neighbours; 0: it is not."""
        if not stands_well(self._world, box):
            return 0
        return self._world.now - max(self._apart_us.get(box.name, NEVER_US), box.booted_us)

    def can_be_told_for_us(self, box: "Box") -> int:
        """Return for how long orders could have reached its agent, had there been a controller."""
        if not self._world.network.reach(box.name, CONTROLLER):
            return 0
        return min(self.well_for_us(box), self._world.now - self._cut_us.get(box.name, NEVER_US))


def executes(worker: "Worker") -> bool:
    """Whether the process does what its orders and its script say."""
    return is_whole(worker) and not worker.stopped and not worker.box.frozen


def is_whole(worker: "Worker") -> bool:
    """Whether it would, once nothing holds it from outside."""
    held = worker.stuck or worker.blocked or worker.spins or worker.quiet or worker.circles
    return not held and not worker.cut_off and not worker.gone


def stands_well(world: "World", box: "Box") -> bool:
    """Whether the machine lives, moves, and all others that do reach it."""
    if not box.alive or box.frozen:
        return False
    if not world.network.cuts:
        return True
    others = (one for one in world.boxes.values() if one.alive and not one.frozen)
    return all(world.network.reach(box.name, one.name) for one in others if one is not box)


def _outages(world: "World") -> object:
    """Return all that is out of order now, to be compared."""
    boxes = [(box.name, box.alive, box.frozen, box.life) for box in world.boxes.values()]
    processes = [
        (worker.pid, worker.stopped, worker.spins and worker.tainted)
        for worker in world.workers()
        if not executes(worker)
    ]
    network = (frozenset(world.network.cuts), frozenset(world.network.slow))
    rest = (world.host is None, world.store_known, world.disk_full, world.disk_hangs)
    return boxes, processes, network, rest
