# SPDX-License-Identifier: Apache-2.0
"""What an agent has with the controller, over all links that carry it one after the other. Pure.

    in      facts: outbox and link      orders: counted and obeyed
    away    facts: outbox alone         somebody dials, with growing pauses; the workers run on
    silent  nothing comes any more      as if the link had ended: another one may carry more
    back    Return -> Resumed: facts that are not safe are said again, orders not heard come

A controller that has given the machine up refuses the return. Then all the agent had is worth
nothing: it ends its workers, and says hello as if it had just been started. It hears of that only
if it reaches the controller; so it has a lease, from when it last heard anything, and ends with it.
For the counts see `server.accounts`.

Whoever has a link asks here what to send over it: calls give encoded facts, in their order.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from trainmover.agent.decide import pause_s
from trainmover.agent.outbox import Outbox
from trainmover.ids import MachineId
from trainmover.protocol.deadlines import HEARD_S, LANE_SILENT_S, SILENT_S, beats
from trainmover.protocol.messages import (
    PROTOCOL,
    UNCOUNTED,
    AgentFact,
    Heard,
    Hello,
    Order,
    Output,
    Refused,
    Resumed,
    Return,
    Unwritten,
    Welcome,
    encode,
)
from trainmover.version import VERSION

UNSAFE_US = 250_000
"""A fact that is not said to be safe for so long may be lost with this machine: the controller says
so five times a second, and workers keep what they told for half a second without being asked."""

HEARTBEAT_US = round(HEARD_S * 1e6)
"""From one to the next over a lane: the controller says as often what is safe."""


class Heeded(NamedTuple):
    """What follows from an order. obey: it is for the machine itself."""

    send: list[bytes]
    obey: bool = False


class Letters:
    """Of one incarnation. lease_us: how long it may hear nothing.

    welcomed  by a link that is there: what is said goes over it
    returns   the controller knows this incarnation: it does not say hello again
    heard     orders since it joined
    term      of the newest controller that has let it in
    unsafe    what is said may be lost with this machine: no controller has it
    """

    def __init__(self, machine: MachineId, incarnation: str, *, lease_us: int, now_us: int) -> None:
        self.incarnation = incarnation
        self.lease_us = lease_us
        self.welcomed = self.returns = self.unsafe = False
        self.heard = self.term = 0
        self.outbox = Outbox()
        self._machine = machine
        self._waiting_output: list[bytes] = []
        self._said_us: deque[int] = deque()  # When each fact in the outbox was said.
        self._back_us = -1
        self._attempts = 0
        self._heard_us = now_us
        self._silent_looks = self._told_us = 0

    # --- facts ----------------------------------------------------------------------------------

    def say(self, fact: AgentFact, now_us: int) -> list[bytes]:
        """A fact that must not be lost: it is numbered."""
        payload = encode(fact)
        self.outbox.keep(payload)
        self._said_us.append(now_us)
        return [payload] if self.welcomed else []

    def tell(self, fact: AgentFact, *, linked: bool) -> list[bytes]:
        """A fact that may be lost with a link. Output waits for the next one."""
        payload = encode(fact)
        if not linked and isinstance(fact, Output | Unwritten):
            self._waiting_output.append(payload)
        return [payload] if linked else []

    @property
    def waiting_bytes(self) -> int:
        """Of output that has no link."""
        return sum(map(len, self._waiting_output))

    # --- a link ---------------------------------------------------------------------------------

    def greeting(self, hello: Callable[[str], Hello]) -> bytes:
        """The first fact over a new one. hello: what an incarnation says that nobody knows yet."""
        if not self.returns:
            return encode(hello(self.incarnation))
        back = Return(
            machine=self._machine,
            incarnation=self.incarnation,
            version=VERSION,
            protocol=PROTOCOL,
            heard=self.heard,
            term=self.term,
            dropped=self.outbox.dropped,
            said=self.outbox.dropped + len(self.outbox.kept),
        )
        return encode(back)

    def goes_behind(self) -> None:
        """The link that comes next is a lane."""
        self._silent_looks, self._told_us = 0, -HEARTBEAT_US

    def beat(self) -> None:
        """The lane has brought a beat; before it is one, that counts for nothing."""
        if self.welcomed:
            self._silent_looks = 0

    def look(self) -> None:
        """To be called every beat of this machine, by which silence is counted: who stood still
        himself has not listened."""
        self._silent_looks += 1

    @property
    def lane_is_silent(self) -> bool:
        """Whether a link of its own is to be dialled beside the lane."""
        return self._silent_looks > beats(LANE_SILENT_S)

    def heartbeat_is_due(self, now_us: int) -> bool:
        """Whether it is to be said over a lane, where each beat is answered anyway; then it is."""
        due = now_us - self._told_us >= HEARTBEAT_US
        if due:
            self._told_us = now_us
        return due

    def link_lost(self) -> None:
        """There is none any more."""
        self.welcomed, self.returns = False, True

    def pause_s(self, chance: float) -> float:
        """Before it is dialled once more. chance: from 0 to 1."""
        self._attempts += 1
        return pause_s(self._attempts - 1, chance)

    def silent(self, now_us: int) -> bool:
        """Whether nothing comes over the link that should carry something."""
        return self.welcomed and now_us - self._heard_us > SILENT_S * 1e6

    def lease_is_over(self, now_us: int) -> bool:
        """Whether it must not go on alone."""
        return now_us - self._heard_us >= self.lease_us

    # --- orders ---------------------------------------------------------------------------------

    def hear(self, order: Order, now_us: int) -> Heeded:
        """Something has come."""
        self._heard_us = now_us
        match order:
            case Heard(facts=facts):
                self._drop(facts)
            case Resumed(facts=facts, term=term):
                self.term = term
                self._drop(facts)
                return Heeded(self._enter(now_us))
            case Refused():
                self.welcomed = False
            case Welcome(term=term):
                self.term = term
                return Heeded([] if self.returns else self._enter(now_us), obey=True)
            case _:
                self.heard += not isinstance(order, UNCOUNTED)
                return Heeded([], obey=True)
        return Heeded([])

    def _drop(self, facts: int) -> None:
        self.outbox.drop(facts)
        while len(self._said_us) > len(self.outbox.kept):
            self._said_us.popleft()

    def _enter(self, now_us: int) -> list[bytes]:
        """Say what could not be said so far."""
        self._back_us = now_us if self.returns else -1
        self.welcomed = self.returns = True
        self._attempts = self._silent_looks = 0
        waiting, self._waiting_output = self._waiting_output, []
        return [*self.outbox.kept, *waiting]

    def safety_changed(self, now_us: int) -> bool:
        """Whether `unsafe` is another than it was. What was said without a link must be safe first;
        and a link may be silent for long before it is lost."""
        before = self.unsafe
        if self.returns:
            since = max(self._back_us, now_us - UNSAFE_US)
            oldest = self._said_us[0] if self._said_us else since + 1
            self.unsafe = not self.welcomed or oldest <= since
        return self.unsafe != before
