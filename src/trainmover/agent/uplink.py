# SPDX-License-Identifier: Apache-2.0
"""An agent's way to the controller: it dials, again and again, and carries what `letters` gives."""

import asyncio
import random
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trainmover.agent.dial import Dialled, dial
from trainmover.agent.letters import Letters
from trainmover.agent.link import FrameLink
from trainmover.agent.relaying.lane import Lane
from trainmover.errors import PeerLost, ProtocolError, TrainmoverError
from trainmover.ids import MachineId
from trainmover.protocol.lanes import RELAY, LaneSession
from trainmover.protocol.messages import (
    AgentFact,
    GoBehind,
    Heartbeat,
    Hello,
    Order,
    Refused,
    Resumed,
    Welcome,
    decode_order,
)

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

UNREACHABLE_MS = 10_000
"""A host that acknowledges nothing for so long is away, though no link has broken."""
UNSENT_BYTES_MAX = 1024 * 1024
BESIDE_S = 0.4
"""Machines whose lanes fall silent together do not all dial the controller at once."""


@dataclass(frozen=True)
class Ear:
    """Who is told what comes of it; the agent.

    hello    for an incarnation: what to say first
    obey     an order, as it came and as it reads
    refused  all that was is void; call `begin_anew` when it is ended
    away     whether what is said may be lost with this machine: no controller has it
    lost     the controller, for good
    """

    hello: Callable[[str], Hello]
    obey: Callable[[bytes, Order], None]
    refused: Callable[[Refused], None]
    away: Callable[[bool], None]
    lost: Callable[[TrainmoverError], None]


class Uplink:
    """address: host:port of the controller; timeout_s: how long it may be away."""

    def __init__(self, machine: MachineId, address: str, timeout_s: float, ear: Ear) -> None:
        self._machine = machine
        self._address = address
        self._lease_us = round(timeout_s * 1e6)
        self._ear = ear
        self._loop = asyncio.get_running_loop()
        self._token = b""
        self._tls: Tls | None = None
        self._link: FrameLink | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._closed = False
        self._run = ""  # Of the job whose machine this has become.
        self._letters = self._begun()
        self._going: asyncio.Task[None] | None = None  # Behind a relay.
        self._left: FrameLink | None = None  # Nothing is heard over it any more.

    def _begun(self, after_us: int = 0) -> Letters:
        return Letters(
            self._machine,
            secrets.token_hex(8),
            lease_us=self._lease_us,
            now_us=self._now_us() + after_us,
        )

    def _now_us(self) -> int:
        """Return the time since boot. It counts while the host is suspended, as its lease does: the
        controller counts that time, too."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000

    def join(self, dialled: Dialled, token: bytes, tls: "Tls | None" = None) -> None:
        """Say hello on a proved connection; the welcome comes as the first order."""
        self._token, self._tls = token, tls
        self._greet(dialled)

    def begin_anew(self, after_s: float) -> None:
        """Say hello again in a while: nothing that was is left."""
        if self._closed:
            return
        if self._dialling is not None:
            self._dialling.cancel()
            self._dialling = None
        was_unsafe, self._letters = self._letters.unsafe, self._begun(round(after_s * 1e6))
        if was_unsafe:
            self._ear.away(False)
        self._dial_again(after_s)

    def lease(self, seconds: float) -> None:
        """No longer than this may the controller be away."""
        self._letters.lease_us = self._lease_us = min(self._lease_us, round(seconds * 1e6))

    def dial_no_more(self) -> None:
        """A link that breaks from now on is not missed."""
        self._closed = True
        for task in (self._dialling, self._going):
            if task is not None:
                task.cancel()

    def close(self) -> None:
        """Send what is queued, then close."""
        self.dial_no_more()
        self._leave()
        if self._link is not None:
            self._link.close()

    def say(self, fact: AgentFact) -> None:
        """A fact that must not be lost."""
        self._send(self._letters.say(fact, self._now_us()))
        outbox = self._letters.outbox
        if outbox.too_full:
            self._lost_for_good(f"{len(outbox.kept)} facts wait for it, which is too many")

    def tell(self, fact: AgentFact) -> None:
        """A fact that may be lost with a link. Output waits for the next one, in bounds."""
        by_the_way = isinstance(fact, Heartbeat) and isinstance(self._link, Lane)
        if by_the_way and not self._letters.heartbeat_is_due(self._now_us()):
            return
        self._send(self._letters.tell(fact, linked=self._link is not None))

    def beat(self) -> None:
        """Look whether what was said is safe, and whether anything is heard; to be called a few
        times a second."""
        if self._link is not None and self._letters.silent(self._now_us()):
            self._link.abort()
        self._letters.look()
        if self._lane_is_silent and not self._closed:
            self._dial_again(BESIDE_S * random.random())
        self._look_whether_safe()

    @property
    def run(self) -> str:
        """Of the job that this is a machine of."""
        return self._run

    @property
    def incarnation(self) -> str:
        return self._letters.incarnation

    @property
    def _lane_is_silent(self) -> bool:
        return isinstance(self._link, Lane) and self._letters.lane_is_silent

    @property
    def heard(self) -> int:
        """Orders since this incarnation joined."""
        return self._letters.heard

    def clogged(self) -> bool:
        """Whether no more output should be told for now."""
        unsent = 0 if self._link is None else self._link.unsent_bytes
        return self._letters.waiting_bytes + unsent > UNSENT_BYTES_MAX

    def _send(self, payloads: list[bytes]) -> None:
        if payloads and self._link is not None:
            self._link.send(payloads)

    def _look_whether_safe(self) -> None:
        if self._letters.safety_changed(self._now_us()):
            self._ear.away(self._letters.unsafe)

    # --- orders ---

    def _hear(self, payload: bytes) -> None:
        order = decode_order(payload)
        send, obey = self._letters.hear(order, self._now_us())
        self._send(send)
        self._look_whether_safe()
        if isinstance(order, Refused):
            self._refuse(order)
        if isinstance(order, Welcome):
            self._run = order.spec.run_id
        if isinstance(order, GoBehind):
            self._go_behind(order)
        if isinstance(order, Resumed):
            self._leave()
        if obey:
            self._ear.obey(payload, order)

    def _refuse(self, refused: Refused) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
        if refused.retry_s is None:
            happened, _, rest = refused.reason.partition("\n")
            self._ear.lost(ProtocolError(happened, means=rest))
        else:
            self._ear.refused(refused)

    # --- links ---

    def _go_behind(self, order: GoBehind) -> None:
        """From a link of its own. If it cannot be done, nothing has changed."""
        busy = self._going is not None and not self._going.done()
        if self._closed or busy or self._link is None or isinstance(self._link, Lane):
            return
        self._going = asyncio.create_task(self._come_behind(order, self._link))
        self._going.add_done_callback(partial(_surface, self._loop))

    def come_behind(self, order: GoBehind) -> None:
        """Go behind a relay, which says that the controller does not reach this machine."""
        busy = self._going is not None and not self._going.done()
        is_in = self._letters.returns or self._letters.welcomed
        if self._closed or busy or not is_in or isinstance(self._link, Lane):
            return
        self._going = asyncio.create_task(self._come_behind(order, None))
        self._going.add_done_callback(partial(_surface, self._loop))

    async def _come_behind(self, order: GoBehind, link: FrameLink | None) -> None:
        """link: that has brought the order and must be there still; None: a neighbour has."""
        try:
            dialled = await dial(
                order.address, self._token, self._tls,
                purpose=RELAY, me=self._machine, whom=order.relay,
            )  # fmt: skip
        except (PeerLost, ProtocolError):  # The controller waits for it in vain, and chooses anew.
            return
        changed = self._link is not link or not self._letters.welcomed
        if self._closed or (link is not None and changed) or isinstance(self._link, Lane):
            dialled.transport.abort()
            return
        link = self._link
        self._letters.link_lost()
        self._letters.goes_behind()
        session = LaneSession(self._token, order.ticket, controller=False)
        self._greet(dialled, session)
        self._left = link  # The controller ends it; before that it would take it for a loss.

    def _greet(self, dialled: Dialled, lane: LaneSession | None = None) -> None:
        """lane: of a relay that was dialled; None: it was the controller."""

        def lost(why: str, alien: bool) -> None:
            self._link_lost(link, why, alien=alien)

        def heard(payload: bytes) -> None:
            if link is self._link:
                self._hear(payload)

        link: FrameLink
        if lane is None:
            link = FrameLink(dialled, heard, lost)
        else:
            link = Lane(
                dialled, heard, lost, machine=self._machine, session=lane, beat=self._letters.beat
            )
        self._link = link
        self._leave()
        sock = dialled.transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREACHABLE_MS)
        link.begin()
        link.send([self._letters.greeting(self._ear.hello)])

    def _link_lost(self, link: FrameLink, why: str, *, alien: bool) -> None:
        if link is not self._link:
            return
        self._link = None
        self._letters.link_lost()
        self._look_whether_safe()
        if alien:
            self._lost_for_good(why)
        elif not self._closed:
            self._dial_again(0.0)

    def _dial_again(self, after_s: float) -> None:
        if self._dialling is not None and not self._dialling.done():
            return  # Beside a lane.
        self._dialling = asyncio.create_task(self._dial(after_s))
        self._dialling.add_done_callback(partial(_surface, self._loop))

    async def _dial(self, after_s: float) -> None:
        """Until there is a link, or it is too late for one. Beside a lane: until that is heard."""
        await asyncio.sleep(after_s)
        error: TrainmoverError | None = None
        letters = self._letters
        while not letters.lease_is_over(self._now_us()):
            await asyncio.sleep(letters.pause_s(random.random()))
            if not self._wants_link:
                return
            try:
                dialled = await dial(
                    self._address, self._token, self._tls, me=self._machine, whom=self._run
                )
            except (PeerLost, ProtocolError) as failed:
                error = failed
            else:
                self._take(dialled)
                return
        self._lost_for_good(f"it did not come back in {letters.lease_us / 1e6:g} s", error)

    def _leave(self) -> None:
        link, self._left = self._left, None
        if link is not None:
            link.abort()

    @property
    def _wants_link(self) -> bool:
        return self._link is None or self._lane_is_silent

    def _take(self, dialled: Dialled) -> None:
        """A link of its own is there; the lane beside it may have been heard meanwhile."""
        if not self._wants_link:
            dialled.transport.abort()
            return
        lane = self._link
        if lane is not None:
            self._letters.link_lost()
        self._greet(dialled)
        self._left = lane

    def _lost_for_good(self, why: str, error: TrainmoverError | None = None) -> None:
        reason = f": {why}" if why else ""
        reason += f" ({error.happened.rstrip('.')})" if error is not None else ""
        self._ear.lost(
            PeerLost(
                f"The link to the controller was lost{reason}.",
                means=f"The workers of {self._machine} are ended.",
                do="If the job still runs, start this agent again: it joins as a standby.",
            )
        )


def _surface(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    """What a task raised is the loop's to report, at once."""
    if not task.cancelled() and (error := task.exception()) is not None:
        loop.call_exception_handler({"message": "dialling failed", "exception": error})
