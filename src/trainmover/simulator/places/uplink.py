# SPDX-License-Identifier: Apache-2.0
"""A machine's way to the controller: what its agent's letters give, over links of this world.

What is sent, kept and said again is decided by `agent.letters`, as in the agent room; here are its
beat, its dialling, and links that break and fall silent.
"""

from typing import TYPE_CHECKING

from trainmover.agent.letters import Letters
from trainmover.protocol import messages as m
from trainmover.protocol.deadlines import BEAT_S
from trainmover.protocol.lanes import BEAT, LaneSession
from trainmover.simulator.happenings import Heard
from trainmover.simulator.places.network import CONTROLLER, Link

if TYPE_CHECKING:
    from trainmover.simulator.places.machines import Box

BEAT_US = round(BEAT_S * 1e6)
LATE_US, LATE_EVERY = 1_500_000, 40
"""One beat in so many of an agent that is tardy comes so late: about one in eight seconds."""
BESIDE_US = 400_000
TOKEN = b"token" * 8


class Uplink:
    """Of one incarnation of an agent; over with it. link: that carries its letters now."""

    def __init__(self, box: "Box", incarnation: str, after_us: int) -> None:
        """after_us: when it says hello."""
        world = box.world
        lease_us, now_us = round(world.spec.patience_s * 1e6), world.now + after_us
        self.letters = Letters(box.name, incarnation, lease_us=lease_us, now_us=now_us)
        self.link: Link | None = None
        self._beats = 0
        self._busy_us = 0  # Until then it hears nothing: a tardy agent does other things.
        self._lane: LaneSession | None = None  # If a relay carries it.
        self._left: Link | None = None  # Nothing is heard over it any more.
        self._dials = False
        self._box = box
        self._world = world
        box.later(after_us, self._dial)
        box.later(after_us, self._beat)

    @property
    def _over(self) -> bool:
        return self._box.uplink is not self

    @property
    def _lane_is_silent(self) -> bool:
        return self._lane is not None and self.letters.lane_is_silent

    def _dial_soon(self, after_us: int) -> None:
        if not self._dials:
            self._dials = True
            self._box.later(after_us, self._dial)

    def _dial(self) -> None:
        world, box = self._world, self._box
        self._dials = False
        if self._over or not (self.link is None or self._lane_is_silent):
            return
        if self.letters.lease_is_over(world.now):
            world.leases_over += 1
            box.die(silent=False)
        elif world.host is not None and world.network.reach(box.name, CONTROLLER):
            lane = self.link
            if lane is not None:
                self.letters.link_lost()
            self._greet(world.host.accept(box), None)
            self._left = lane
        else:
            self._dial_soon(round(self.letters.pause_s(world.random.random()) * 1e6))

    def _greet(self, link: Link, lane: LaneSession | None) -> None:
        self._leave()
        self.link, self._lane = link, lane
        self._send([self.letters.greeting(self._box.hello)])

    def _leave(self) -> None:
        link, self._left = self._left, None
        if link is not None:
            link.reset()

    def _go_behind(self, order: m.GoBehind, link: Link) -> None:
        """From a link of its own."""
        box = self._box
        relay = box.world.relay_at(order.relay, order.address)
        if self._over or link is not self.link or self._lane is not None or relay is None:
            return
        if not self.letters.welcomed or not box.world.boxes[order.relay].answers(box):
            return
        self.letters.link_lost()
        self.letters.goes_behind()
        self._greet(
            relay.accept(self, box.name), LaneSession(TOKEN, order.ticket, controller=False)
        )
        self._left = link

    def come_behind(self, order: m.GoBehind) -> None:
        """A relay says that the controller does not reach this machine."""
        box, letters = self._box, self.letters
        relay = box.world.relay_at(order.relay, order.address)
        is_in = letters.returns or letters.welcomed
        if self._over or not is_in or self._lane is not None or relay is None:
            return
        if not box.world.boxes[order.relay].answers(box):
            return
        link = self.link
        letters.link_lost()
        letters.goes_behind()
        lane = LaneSession(TOKEN, order.ticket, controller=False)
        self._greet(relay.accept(self, box.name), lane)
        self._left = link

    def _beat(self) -> None:
        if self._over:
            return
        if self._lane is None or self.letters.heartbeat_is_due(self._world.now):
            free_bytes, all_bytes = self._box.memory()
            heard = self.letters.heard
            self.tell(m.Heartbeat(heard=heard, free_bytes=free_bytes, all_bytes=all_bytes))
        self.letters.look()
        if self._lane_is_silent:
            self._dial_soon(self._world.between(0, BESIDE_US))
        if self._box.relay is not None:
            self._box.relay.beat()
        link = self.link
        if link is not None and self.letters.silent(self._world.now):
            self._link_lost(link)
            link.reset()
        self._look_whether_safe()
        self._beats += 1
        late = self._box.name in self._world.knobs.tardy and self._beats % LATE_EVERY == 0
        self._busy_us = self._world.now + LATE_US if late else 0
        self._box.later(LATE_US if late else BEAT_US, self._beat)

    def _look_whether_safe(self) -> None:
        if self.letters.safety_changed(self._world.now):
            self._box.keep_told(self.letters.unsafe)

    # --- facts ----------------------------------------------------------------------------------

    def say(self, fact: m.AgentFact) -> None:
        """A fact that must not be lost."""
        self._send(self.letters.say(fact, self._world.now))

    def tell(self, fact: m.AgentFact) -> None:
        """What may be lost with a link."""
        self._send(self.letters.tell(fact, linked=self.link is not None))

    def _send(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            assert self.link is not None
            frame = payload if self._lane is None else self._lane.seal(payload)
            self.link.send(frame, up=True)

    # --- what comes over a link -----------------------------------------------------------------

    def hear(self, link: Link, payload: bytes) -> None:
        """Something has come from the controller."""
        if self._box.alive and link is self.link:
            self._box.later(max(self._busy_us - self._world.now, 0), self._hear, link, payload)

    def _hear(self, link: Link, payload: bytes) -> None:
        if self._over or link is not self.link:
            return
        if self._lane is not None:
            if payload == BEAT:
                self.letters.beat()
                link.send(BEAT, up=True)
                return
            payload = self._lane.opened(payload)
        order = m.decode_order(payload)
        send, obey = self.letters.hear(order, self._world.now)
        self._send(send)
        self._look_whether_safe()
        if isinstance(order, m.GoBehind):
            self._box.later(self._world.between(1_000, 10_000), self._go_behind, order, link)
        if isinstance(order, m.Resumed):
            self._leave()
        if isinstance(order, m.Refused):
            self.link = self._lane = None
            link.reset()
            self._box.refused(order)
        elif obey:
            self._obey(order)

    def _obey(self, order: m.Order) -> None:
        if not isinstance(order, m.UNCOUNTED):
            box, letters = self._box, self.letters
            self._world.tell(Heard(box.name, letters.incarnation, letters.heard, order))
        self._box.obey(order)

    def lost(self, link: Link) -> None:
        """The agent has seen its connection end."""
        if self._box.alive and link is self.link:
            self._box.later(0, self._link_lost, link)

    def _link_lost(self, link: Link) -> None:
        if self._over or link is not self.link:
            return
        self.link = self._lane = None
        self.letters.link_lost()
        self._look_whether_safe()
        self._dial()
