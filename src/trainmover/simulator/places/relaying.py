# SPDX-License-Identifier: Apache-2.0
"""A machine that carries what others say: the carrier of the agent room, over links of here."""

from typing import TYPE_CHECKING

from trainmover.agent.relaying.carrier import Carrier
from trainmover.ids import MachineId
from trainmover.protocol import messages as m
from trainmover.protocol.deadlines import SILENT_S
from trainmover.simulator.places.network import Link

if TYPE_CHECKING:
    from trainmover.simulator.places.machines import Box
    from trainmover.simulator.places.uplink import Uplink

WAIT_US = 5_000
SILENT_US = round(SILENT_S * 1e6)


class Relay:
    """Of one box, from when it was asked until its trunk has ended."""

    def __init__(self, box: "Box", incarnation: str) -> None:
        host = box.world.host
        assert host is not None
        self.address = f"{box.name}:relay:{box.world.next_pid()}"
        self.over = False
        self.trunk = host.accept_trunk(self, box)
        self._box, self._world = box, box.world
        self._carrier = Carrier()
        self._lanes: dict[int, Link] = {}
        self._heard_us = box.world.now
        self._waiting = False
        trunk = m.Trunk(machine=box.name, incarnation=incarnation, address=self.address)
        self.trunk.send(m.encode(trunk), up=True)

    # --- machines -------------------------------------------------------------------------------

    def accept(self, uplink: "Uplink", machine: MachineId) -> Link:
        """A machine has dialled, and has proved its name."""
        number = self._carrier.come(machine)
        link = self._lanes[number] = Link(
            self._world,
            machine,
            up=lambda _, frame: self._soon(self._say, number, frame),
            down=uplink.hear,
            lost_up=lambda _: self._soon(self._gone, number),
            lost_down=uplink.lost,
            far=self._box.name,
        )
        self._send_soon()
        return link

    def _soon(self, act: object, *given: object) -> None:
        if self._box.alive and not self.over:
            self._box.later(0, act, *given)  # type: ignore[arg-type]

    def _say(self, number: int, frame: bytes) -> None:
        if number in self._lanes:
            self._carrier.say(number, frame)
            self._send_soon()

    def _gone(self, number: int) -> None:
        if self._lanes.pop(number, None) is not None:
            self._carrier.go(number)
            self._send_soon()

    def _send_soon(self) -> None:
        if self._carrier.is_full:
            self._send()
        elif not self._waiting:
            self._waiting = True
            self._box.later(WAIT_US, self._send)

    def _send(self) -> None:
        self._waiting = False
        if not self.over and self._carrier.waits:
            for payload in self._carrier.given():
                self.trunk.send(payload, up=True)

    # --- the trunk ------------------------------------------------------------------------------

    def hear(self, _: Link, payload: bytes) -> None:
        """Something has come from the controller."""
        self._soon(self._hear, payload)

    def _hear(self, payload: bytes) -> None:
        self._heard_us = self._world.now
        for number, frame in self._carrier.hear(payload):
            if frame is None:
                lane = self._lanes.pop(number, None)
                if lane is not None:  # It may have ended by itself.
                    lane.reset()
            elif number in self._lanes:
                self._lanes[number].send(frame, up=False)
        if self._carrier.waits:
            self._send_soon()

    def lost(self, _: Link) -> None:
        """The trunk has ended."""
        self._soon(self.end)

    def beat(self) -> None:
        """A trunk over which nothing comes is none."""
        if self._world.now - self._heard_us > SILENT_US:
            self.end()

    def end(self) -> None:
        """It relays no more."""
        if self.over:
            return
        self.over = True
        for link in self.links:
            link.reset()
        self._lanes.clear()

    @property
    def links(self) -> list[Link]:
        """All that it has."""
        return [self.trunk, *self._lanes.values()]
