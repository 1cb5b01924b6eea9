# SPDX-License-Identifier: Apache-2.0
"""Who reaches whom, how fast, and the connections between agents and the controller.

A connection is what TCP makes of packets: in order, nothing twice, nothing lost until it breaks;
then whatever was under way is gone. Where packets do not arrive the connection stays, silent.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainmover.ids import MachineId

if TYPE_CHECKING:
    from trainmover.simulator.world import World

CONTROLLER = MachineId("controller")
STALLS_US = 2_000_000
"""A sender that hears no acknowledgement sends for so long, into its window."""
DELAY_US = 300


class Network:
    """cuts: from and to, between which nothing arrives; slow: who sends late, by how much.
    stopped: whose process stands still: what is sent to it waits in its sockets."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.cuts: dict[tuple[MachineId, MachineId], int] = {}
        self.slow: dict[MachineId, int] = {}
        self.stopped: set[MachineId] = set()
        self.links: list[Link] = []

    def reach(self, one: MachineId, other: MachineId) -> bool:
        """Whether the two can talk: both ways must be open."""
        cuts = self.cuts
        if one in self.stopped or other in self.stopped:
            return False
        return not cuts or ((one, other) not in cuts and (other, one) not in cuts)

    def delay_us(self, sender: MachineId) -> int:
        """Of one message."""
        chance = self._world.random.random()
        base = int(DELAY_US * (1 + 9 * chance * chance))
        return base + (int(self.slow[sender] * chance) if sender in self.slow else 0)

    def cut(self, one: MachineId, other: MachineId) -> None:
        """From `one` to `other` nothing arrives any more."""
        self.cuts[one, other] = self._world.now
        self._world.struck |= {one, other}

    def mend(self, one: MachineId, other: MachineId) -> None:
        """What waited goes on."""
        if self.cuts.pop((one, other), None) is not None:
            for link in self.links:
                link.flow()

    def stop(self, one: MachineId) -> None:
        """Have a process neither read nor answer."""
        self.stopped.add(one)

    def go_on(self, one: MachineId) -> None:
        """Have it read what has come meanwhile."""
        self.stopped.discard(one)
        for link in list(self.links):
            link.flow()

    def stalled(self, sender: MachineId, receiver: MachineId) -> bool:
        """Whether nothing of `sender` arrives: also if it has had no answer for too long."""
        if (sender, receiver) in self.cuts or receiver in self.stopped:
            return True
        since = self.cuts.get((receiver, sender))
        return since is not None and self._world.now - since > STALLS_US


class Link:
    """One connection of an agent to the controller, or to a relay, which is its upper end; the ends
    are called with what arrives.

    broken  for both; each end is told after a while (`lost_here`, `lost_there`)
    """

    def __init__(
        self,
        world: "World",
        machine: MachineId,
        *,
        up: Callable[["Link", bytes], None],
        down: Callable[["Link", bytes], None],
        lost_up: Callable[["Link"], None],
        lost_down: Callable[["Link"], None],
        far: MachineId = CONTROLLER,
    ) -> None:
        self.machine = machine
        self._far = far
        self.broken = False
        self._world = world
        self._ends = {True: up, False: down}
        self._lost = {True: lost_up, False: lost_down}
        self._last = {True: 0, False: 0}
        self._waiting: dict[bool, deque[bytes]] = {True: deque(), False: deque()}
        world.network.links.append(self)

    def send(self, payload: bytes, *, up: bool) -> None:
        """To the controller, or from it."""
        if self.broken:
            return
        world = self._world
        sender = self.machine if up else self._far
        due = max(world.now + world.network.delay_us(sender), self._last[up])
        self._last[up] = due
        world.at(due - world.now, self._arrive, up, payload)

    def _arrive(self, up: bool, payload: bytes) -> None:
        if self.broken:
            return
        if self._waiting[up] or self._stalled(up):
            self._waiting[up].append(payload)
            return
        self._ends[up](self, payload)

    def _stalled(self, up: bool) -> bool:
        ends = (self.machine, self._far)
        return self._world.network.stalled(*(ends if up else ends[::-1]))

    def flow(self) -> None:
        """Whatever has waited for the network arrives now."""
        for up, waiting in self._waiting.items():
            while waiting and not self.broken and not self._stalled(up):
                self._ends[up](self, waiting.popleft())
        if self.broken:
            self._tell_ends()

    def reset(self) -> None:
        """Both ends learn of it, as soon as they can."""
        if not self.broken:
            self.broken = True
            self._tell_ends()

    def _tell_ends(self) -> None:
        for up in (True, False):
            if not self._stalled(not up):
                self._world.at(self._world.network.delay_us(self.machine), self._tell, up)
        if not self._stalled(True) and not self._stalled(False):
            links = self._world.network.links
            if self in links:
                links.remove(self)

    def _tell(self, up: bool) -> None:
        self._lost[up](self)
