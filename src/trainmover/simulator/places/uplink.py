"""A machine's way to the controller: what its agent's letters give, over links of this world.

What is sent, kept and said again is decided by `agent.letters`, as in the agent room; here are its
beat, its dialling, and links that break and fall silent.
"""

from typing import TYPE_CHECKING

from trainmover.agent.letters import Letters
from trainmover.protocol import messages as m
from trainmover.protocol.deadlines import BEAT_S
from trainmover.simulator.happenings import Heard
from trainmover.simulator.places.network import CONTROLLER, Link

if TYPE_CHECKING:
    from trainmover.simulator.places.machines import Box

BEAT_US = round(BEAT_S * 1e6)
LATE_US, LATE_EVERY = 1_500_000, 40
"""One beat in so many of an agent that is tardy comes so late: about one in eight seconds."""


class Uplink:
    """Of one incarnation of an agent; over with it. link: that carries its letters now."""

    def __init__(self, box: "Box", incarnation: str, after_us: int) -> None:
        """after_us: when it says hello."""
        world = box.world
        lease_us, now_us = round(world.spec.patience_s * 1e6), world.now + after_us
        self.letters = Letters(box.name, incarnation, lease_us=lease_us, now_us=now_us)
        self.link: Link | None = None
        self._beats = 0
        self._box = box
        self._world = world
        box.later(after_us, self._dial)
        box.later(after_us, self._beat)

    @property
    def _over(self) -> bool:
        return self._box.uplink is not self

    def _dial(self) -> None:
        world, box = self._world, self._box
        if self._over or self.link is not None:
            return
        if self.letters.lease_is_over(world.now):
            box.die(silent=False)
        elif world.host is not None and world.network.reach(box.name, CONTROLLER):
            self.link = world.host.accept(box)
            self.link.send(self.letters.greeting(box.hello), up=True)
        else:
            box.later(round(self.letters.pause_s(world.random.random()) * 1e6), self._dial)

    def _beat(self) -> None:
        if self._over:
            return
        free_bytes, all_bytes = self._box.memory()
        beat = m.Heartbeat(heard=self.letters.heard, free_bytes=free_bytes, all_bytes=all_bytes)
        self.tell(beat)
        link = self.link
        if link is not None and self.letters.silent(self._world.now):
            self._link_lost(link)
            link.reset()
        self._look_whether_safe()
        self._beats += 1
        late = self._box.name in self._world.knobs.tardy and self._beats % LATE_EVERY == 0
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
            self.link.send(payload, up=True)

    # --- what comes over a link -----------------------------------------------------------------

    def hear(self, link: Link, payload: bytes) -> None:
        """Something has come from the controller."""
        if self._box.alive and link is self.link:
            self._box.later(0, self._hear, link, payload)

    def _hear(self, link: Link, payload: bytes) -> None:
        if self._over or link is not self.link:
            return
        order = m.decode_order(payload)
        send, obey = self.letters.hear(order, self._world.now)
        self._send(send)
        self._look_whether_safe()
        if isinstance(order, m.Refused):
            self.link = None
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
        self.link = None
        self.letters.link_lost()
        self._look_whether_safe()
        self._dial()
