"""What an agent has with the controller, over all the links that carry it one after the other.

    in      facts: outbox and link      orders: counted and obeyed
    away    facts: outbox alone         dials again, with growing pauses; the workers run on
    silent  nothing comes any more      as if the link had ended: another one may carry more
    back    Return -> Resumed: facts that are not safe are said again, orders not heard come

A controller that has given the machine up refuses the return. Then all the agent had is worth
nothing: it ends its workers, and says hello as if it had just been started. It hears of that only
if it reaches the controller; so it has a lease, from when it last heard anything, and ends with it.
For the counts see `server.accounts`.
"""

import asyncio
import math
import random
import secrets
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trainmover.agent.decide import pause_s
from trainmover.agent.dial import Dialled, dial
from trainmover.agent.link import FrameLink
from trainmover.agent.outbox import Outbox
from trainmover.errors import PeerLost, ProtocolError, TrainmoverError
from trainmover.ids import MachineId
from trainmover.protocol.deadlines import SILENT_S
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
    decode_order,
    encode,
)
from trainmover.version import VERSION

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

UNREACHABLE_MS = 10_000
"""A host that acknowledges nothing for so long is away, though no link has broken."""
UNSENT_BYTES_MAX = 1024 * 1024
UNSAFE_S = 0.25
"""A fact that is not said to be safe for so long may be lost with this machine: the controller says
so five times a second, and workers keep what they told for half a second without being asked."""


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
        self._timeout_s = timeout_s
        self._ear = ear
        self._loop = asyncio.get_running_loop()
        self._token = b""
        self._tls: Tls | None = None
        self._link: FrameLink | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._closed = False
        self._run = ""  # Of the job whose machine this has become.
        self._begin()

    def _begin(self) -> None:
        self._incarnation = secrets.token_hex(8)
        self._outbox = Outbox()
        self._output: list[bytes] = []
        self._said_at: deque[float] = deque()  # Of every fact in the outbox.
        self._heard = self._term = 0
        self._away = False
        self._back_at = -math.inf
        self._in = False
        self._returns = False
        self._attempts = 0
        self._heard_at = self._loop.time()

    def join(self, dialled: Dialled, token: bytes, tls: "Tls | None" = None) -> None:
        """Say hello on a proved connection; the welcome comes as the first order."""
        self._token, self._tls = token, tls
        self._greet(dialled)

    def begin_anew(self, after_s: float) -> None:
        """Say hello again in a while: nothing that was is left."""
        if self._closed:
            return
        self._begin()
        self._heard_at += after_s
        self._dial_again(after_s)

    def lease(self, seconds: float) -> None:
        """No longer than this may the controller be away."""
        self._timeout_s = min(self._timeout_s, seconds)

    def dial_no_more(self) -> None:
        """A link that breaks from now on is not missed."""
        self._closed = True
        if self._dialling is not None:
            self._dialling.cancel()

    def close(self) -> None:
        """Send what is queued, then close."""
        self.dial_no_more()
        if self._link is not None:
            self._link.close()

    def say(self, fact: AgentFact) -> None:
        """A fact that must not be lost: it is numbered."""
        payload = encode(fact)
        self._outbox.keep(payload)
        self._said_at.append(self._loop.time())
        if self._in and self._link is not None:
            self._link.send([payload])
        if self._outbox.too_full:
            self._lost_for_good(f"{len(self._outbox.kept)} facts wait for it, which is too many")

    def tell(self, fact: AgentFact) -> None:
        """A fact that may be lost with a link. Output waits for the next one, in bounds."""
        payload = encode(fact)
        if self._link is not None:
            self._link.send([payload])
        elif isinstance(fact, Output | Unwritten):
            self._output.append(payload)

    def beat(self) -> None:
        """Look whether what was said is safe, and whether anything is heard; to be called a few
        times a second."""
        if self._link is not None and self._in and self._silent_s > SILENT_S:
            self._link.abort()
        if self._returns:
            self._look_whether_safe()

    @property
    def _silent_s(self) -> float:
        return self._loop.time() - self._heard_at

    @property
    def heard(self) -> int:
        """Orders since this incarnation joined."""
        return self._heard

    def clogged(self) -> bool:
        """Whether no more output should be told for now."""
        waiting = sum(map(len, self._output))
        if self._link is not None:
            waiting += self._link.unsent_bytes
        return waiting > UNSENT_BYTES_MAX

    # --- orders ---

    def _hear(self, payload: bytes) -> None:
        self._heard_at = self._loop.time()
        order = decode_order(payload)
        match order:
            case Heard(facts=facts):
                self._drop(facts)
                self._look_whether_safe()
            case Resumed(facts=facts, term=term):
                self._term = term
                self._drop(facts)
                self._enter()
            case Refused():
                self._refuse(order)
            case _:
                if isinstance(order, Welcome):
                    self._term, self._run = order.term, order.spec.run_id
                    if not self._returns:
                        self._enter()
                if not isinstance(order, UNCOUNTED):
                    self._heard += 1
                self._ear.obey(payload, order)

    def _drop(self, facts: int) -> None:
        self._outbox.drop(facts)
        while len(self._said_at) > len(self._outbox.kept):
            self._said_at.popleft()

    def _look_whether_safe(self) -> None:
        """All that was said to nobody has to be, and a link may be silent for long before it is
        lost."""
        oldest = self._said_at[0] if self._said_at else math.inf
        since = max(self._back_at, self._loop.time() - UNSAFE_S)
        away = not self._in or oldest <= since
        if away != self._away:
            self._away = away
            self._ear.away(away)

    def _enter(self) -> None:
        """Say what could not be said so far."""
        self._back_at = self._loop.time() if self._returns else -math.inf
        self._in = self._returns = True
        self._attempts = 0
        if self._link is not None:
            self._link.send([*self._outbox.kept, *self._output])
        self._output.clear()
        self._look_whether_safe()

    def _refuse(self, refused: Refused) -> None:
        self._drop_link()
        if refused.retry_s is None:
            happened, _, rest = refused.reason.partition("\n")
            self._ear.lost(ProtocolError(happened, means=rest))
        else:
            self._ear.refused(refused)

    def _drop_link(self) -> None:
        link, self._link, self._in = self._link, None, False
        if link is not None:
            link.close()

    # --- links ---

    def _greet(self, dialled: Dialled) -> None:
        def lost(why: str, alien: bool) -> None:
            self._link_lost(link, why, alien=alien)

        self._link = link = FrameLink(dialled, self._hear, lost)
        sock = dialled.transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREACHABLE_MS)
        link.begin()
        link.send([encode(self._greeting())])

    def _greeting(self) -> AgentFact:
        if not self._returns:
            return self._ear.hello(self._incarnation)
        return Return(
            machine=self._machine,
            incarnation=self._incarnation,
            version=VERSION,
            protocol=PROTOCOL,
            heard=self._heard,
            term=self._term,
            dropped=self._outbox.dropped,
        )

    def _link_lost(self, link: FrameLink, why: str, *, alien: bool) -> None:
        if link is not self._link:
            return
        self._link = None
        was_in, self._in, self._returns = self._in, False, True
        if was_in:
            self._look_whether_safe()
        if alien:
            self._lost_for_good(why)
        elif not self._closed:
            self._dial_again(0.0)

    def _dial_again(self, after_s: float) -> None:
        self._dialling = asyncio.create_task(self._dial(after_s))
        self._dialling.add_done_callback(partial(_surface, self._loop))

    async def _dial(self, after_s: float) -> None:
        """Until there is a link, or it is too late for one."""
        await asyncio.sleep(after_s)
        error: TrainmoverError | None = None
        while self._silent_s < self._timeout_s:
            await asyncio.sleep(pause_s(self._attempts, random.random()))
            self._attempts += 1
            try:
                dialled = await dial(
                    self._address, self._token, self._tls, me=self._machine, whom=self._run
                )
            except (PeerLost, ProtocolError) as failed:
                error = failed
            else:
                self._greet(dialled)
                return
        self._lost_for_good(f"it did not come back in {self._timeout_s:g} s", error)

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
