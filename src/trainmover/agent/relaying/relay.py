# SPDX-License-Identifier: Apache-2.0
"""A machine that carries what others say: it listens for them, and has a trunk to the controller.

If either fails it is no relay any more: whoever was behind it dials the controller by itself.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from trainmover.agent.dial import Dialled, dial
from trainmover.agent.link import FrameLink
from trainmover.agent.relaying.carrier import Carrier
from trainmover.errors import PeerLost, ProtocolError
from trainmover.ids import MachineId
from trainmover.listeners.loop_listener import LoopListener
from trainmover.protocol.deadlines import SILENT_S
from trainmover.protocol.hello import hashed
from trainmover.protocol.lanes import CARRIED_BYTES_MAX, RELAY
from trainmover.protocol.messages import Trunk, encode
from trainmover.protocol.sealed import SealedReader, Session

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

WAIT_S = 0.005
"""For what other lanes say at the same moment."""
UNHEARD_BYTES_MAX = 64 * 1024 * 1024
"""What a machine has not taken; then its lane ends."""
UNSENT_BYTES_MAX = 1024 * 1024
"""What the trunk has not taken: until it has, no lane is read from."""
UNREACHABLE_MS = 10_000


class Relay:
    """Of one machine. controller: where that is; host: of the address that others reach it by."""

    def __init__(
        self, machine: MachineId, controller: str, host: str, token: bytes, tls: "Tls | None"
    ) -> None:
        self._machine, self._controller, self._host = machine, controller, host
        self._token, self._tls = token, tls
        self._loop = asyncio.get_running_loop()
        self._beginning: asyncio.Task[None] | None = None
        self._listener: LoopListener | None = None
        self._trunk: _TrunkLink | None = None
        self._closed = self._paused = False
        self._heard_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._carrier = Carrier()
        self._lanes: dict[int, _Lane] = {}
        self.alone = asyncio.Event()
        """Nobody is behind it."""
        self.alone.set()

    def begin(self, run: str, incarnation: str) -> None:
        """Listen, and dial; asked again while it relays it does nothing."""
        busy = self._beginning is not None and not self._beginning.done()
        if not self._closed and not busy and self._trunk is None:
            self._beginning = self._loop.create_task(self._begin(run, incarnation))

    async def _begin(self, run: str, incarnation: str) -> None:
        """Where that fails the controller waits for it in vain, and takes another."""
        try:
            dialled = await dial(
                self._controller, self._token, self._tls, me=self._machine, whom=run
            )
        except (PeerLost, ProtocolError):
            return
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        bound = socket.create_server((self._host, 0), family=family)
        host, port = bound.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._carrier = Carrier()
        self._listener = LoopListener(
            self._token, RELAY, partial(_Lane, self), name=self._machine, tls=self._tls
        )
        await self._listener.open(bound)
        self._trunk = _TrunkLink(dialled, self._hear, self._trunk_lost, self.pause)
        dialled.transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        sock = dialled.transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREACHABLE_MS)
        self._heard_s = self._loop.time()
        self._trunk.begin()
        trunk = Trunk(machine=self._machine, incarnation=incarnation, address=address)
        self._trunk.send([encode(trunk)])
        if self._closed:
            self.stop()

    def beat(self) -> None:
        """To be called a few times a second: a trunk over which nothing comes is none."""
        silent = self._loop.time() - self._heard_s > SILENT_S
        if self._trunk is not None and silent:
            self._trunk.abort()

    async def left(self, within_s: float) -> None:
        """Until nobody is behind it, or so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.alone.wait()

    def stop(self) -> None:
        """It relays no more, until it is asked again."""
        self._flush()
        trunk, self._trunk = self._trunk, None
        if trunk is not None:
            trunk.close()
        self._end_lanes()

    def close(self) -> None:
        """For good."""
        self._closed = True
        self.stop()

    def _trunk_lost(self, why: str, alien: bool) -> None:
        self._trunk = None
        self._end_lanes()

    def _end_lanes(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for lane in list(self._lanes.values()):
            lane.close()
        self._lanes.clear()
        self.alone.set()

    # --- up -------------------------------------------------------------------------------------

    def came(self, lane: "_Lane", machine: MachineId) -> int:
        """A machine that has proved its name: its number."""
        number = self._carrier.come(machine)
        self._lanes[number] = lane
        lane.pause(self._paused)
        self.alone.clear()
        self._soon()
        return number

    def say(self, number: int, frame: bytes) -> None:
        """What it says."""
        if number in self._lanes:
            self._carrier.say(number, frame)
            self._soon()

    def gone(self, number: int) -> None:
        """Its connection has ended."""
        if self._lanes.pop(number, None) is not None:
            self._carrier.go(number)
            self._soon()
        if not self._lanes:
            self.alone.set()

    def _soon(self) -> None:
        if self._carrier.is_full:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(WAIT_S, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._trunk is not None and self._carrier.waits:
            self._trunk.send(self._carrier.given())

    def pause(self, paused: bool) -> None:
        """Whether the trunk takes nothing: what lanes say waits with them."""
        self._paused = paused
        for lane in self._lanes.values():
            lane.pause(paused)

    # --- down -----------------------------------------------------------------------------------

    def _hear(self, payload: bytes) -> None:
        self._heard_s = self._loop.time()
        for number, frame in self._carrier.hear(payload):
            if frame is None:
                lane = self._lanes.pop(number, None)
                if lane is not None:  # It may have ended by itself.
                    lane.close()
            elif number in self._lanes:
                self._lanes[number].send(frame)
        if not self._lanes:
            self.alone.set()
        if self._carrier.waits:
            self._soon()


class _TrunkLink(FrameLink):
    """The relay's connection to the controller. pressed(whether it takes nothing)."""

    bytes_max = CARRIED_BYTES_MAX

    def __init__(
        self,
        dialled: Dialled,
        heard: Callable[[bytes], None],
        lost: Callable[[str, bool], None],
        pressed: Callable[[bool], None],
    ) -> None:
        super().__init__(dialled, heard, lost)
        self._pressed = pressed

    def pause_writing(self) -> None:
        self._pressed(True)

    def resume_writing(self) -> None:
        self._pressed(False)


class _Lane(asyncio.Protocol):
    """One machine behind this relay, from its proof on. Its first frame is its name."""

    def __init__(self, relay: Relay, session: Session) -> None:
        self._relay, self._session = relay, session
        self._reader = SealedReader(session, bytes_max=CARRIED_BYTES_MAX)
        self._number = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._reader.feed(data)
        except ProtocolError:  # Changed on its way.
            self.abort()
            return
        for frame in frames:
            if self._number:
                self._relay.say(self._number, frame)
            elif self._session.peer == hashed(frame):
                self._number = self._relay.came(self, MachineId(frame.decode(errors="replace")))
            else:
                self.abort()
                return

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._relay.gone(self._number)

    def send(self, frame: bytes) -> None:
        if self._transport is None:
            return
        self._transport.write(self._session.seal(frame, bytes_max=CARRIED_BYTES_MAX))
        if self._transport.get_write_buffer_size() > UNHEARD_BYTES_MAX:
            self.abort()

    def pause(self, paused: bool) -> None:
        """Whether nothing is read from it."""
        if self._transport is None or self._transport.is_closing():
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        """Behind what was sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
