# SPDX-License-Identifier: Apache-2.0
"""A group carried by NCCL: a whole new communicator for every epoch, made while training goes on.

Making one connects the seats over sockets and looks at the machines; memory is taken and the fast
connections are made with its first call, when the one before is gone. What blocks inside the
library is never waited for by anybody who has something else to do: all seats meet in the store
first, and a thread that is left behind in it is counted."""

import time
from dataclasses import replace

import torch

from trainmover.comm.communicator import LinkStats, View
from trainmover.comm.meet.meeting import Meeting
from trainmover.comm.meet.upcoming import Upcoming
from trainmover.comm.nccl.device import Device, await_events
from trainmover.comm.nccl.ending import endings
from trainmover.comm.nccl.init import Init, own_card
from trainmover.comm.nccl.library import (
    INTERNAL_ERROR,
    REMOTE_ERROR,
    SUM,
    SYSTEM_ERROR,
    UINT8,
    NcclError,
    UniqueId,
    library,
)
from trainmover.comm.nccl.seats import Card, check_cards
from trainmover.comm.nccl.session import NcclSession
from trainmover.errors import PeerLost

INIT_S = 120.0
"""So long the library may take to connect seats that have all come."""

_WARM: set[str] = set()


def warm_up(device: Device) -> None:
    """Have the library load its kernels, and look at the machine and its network, before a group
    needs it: by a communicator of one seat, used once. Only the first time in a process.

    Raises UserError where there is no libnccl, NcclError where it does not work here.
    """
    if device.name in _WARM:
        return
    given = library()
    init = Init(given, device, size=1, seat=0, unique_id=given.unique_id())
    deadline = time.monotonic() + INIT_S
    if not init.wait(lambda: time.monotonic() >= deadline):
        raise PeerLost(f"NCCL has not begun to work within {INIT_S:g} s")
    if init.error is not None:
        raise init.error
    with device.here():
        stream, one = device.stream(), torch.zeros(1, dtype=torch.uint8, device=device.device)
        device.follow_caller(stream)
        at = one.data_ptr()
        given.all_reduce(at, at, 1, UINT8, SUM, init.comm, device.handle(stream))
        come = await_events(device, [device.mark(stream)], INIT_S)
    if come:
        given.comm_abort(init.comm)
    _WARM.add(device.name)


def _spares_the_job(error: Exception | None) -> bool:
    """Tell whether an init that failed may succeed in the next epoch: not if the library was
    misused, and not if the device is lost."""
    if isinstance(error, NcclError):
        return error.code in (SYSTEM_ERROR, INTERNAL_ERROR, REMOTE_ERROR)
    return isinstance(error, torch.OutOfMemoryError)


class NcclCommunicator:
    """Carries one group's tensors of a device; see `Communicator` for the protocol."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._library = given = library()
        self._stream = device.stream()
        self._session: NcclSession | None = None
        self._upcoming = Upcoming[NcclSession](lambda one: endings.free(given, [one]))
        self._inits: list[Init] = []
        self._proof: list[str] = []
        self._stats = LinkStats()

    @property
    def session(self) -> NcclSession | None:
        return self._session

    def prepare(self, view: View) -> None:
        self._upcoming.prepare(view, self._connect)

    def _connect(self, meeting: Meeting) -> NcclSession:
        view = meeting.view
        meeting.take_seat()
        mine = own_card(self._library, self._device)
        cards = [Card.read(said) for said in meeting.exchange("nccl", mine.text())]
        check_cards(view.group, cards)
        unique_id = self._unique_id(meeting)
        meeting.check()
        init = Init(
            self._library, self._device, size=view.size, seat=view.seat, unique_id=unique_id
        )
        self._inits = [old for old in self._inits if old.leaked] + [init]
        patience_s = min(INIT_S, view.timeout.total_seconds())
        deadline = time.monotonic() + patience_s
        if not init.wait(lambda: meeting.is_given_up or time.monotonic() >= deadline):
            meeting.check()
            raise PeerLost(
                f"group {view.group} could not connect within {patience_s:g} s over NCCL"
            )
        if _spares_the_job(init.error):
            raise PeerLost(f"group {view.group} could not connect: {init.error}") from init.error
        if init.error is not None:
            raise init.error
        return NcclSession(
            meeting,
            init.comm,
            library=self._library,
            device=self._device,
            stream=self._stream,
            proof=self._proof,
        )

    def _unique_id(self, meeting: Meeting) -> UniqueId:
        mine = self._library.unique_id().to_hex() if meeting.view.seat == 0 else ""
        try:
            return UniqueId.from_hex(meeting.hear("nccl-id", mine))
        except ValueError as error:
            raise PeerLost(f"what a seat left in the store is damaged: {error}") from error

    def switchover(self, epoch: int) -> None:
        """The new one connects with its first call: until then the old one keeps its memory."""
        started = time.perf_counter_ns()
        session, prepare_ns = self._upcoming.take(epoch)
        if (old := self._session) is not None:
            session.before = self._still_held(old)
        self._session = session
        self._stats = LinkStats(
            opened=session.size - 1,
            closed=0 if old is None else old.size - 1,
            prepare_ns=prepare_ns,
            switchover_ns=time.perf_counter_ns() - started,
        )

    def _still_held(self, old: NcclSession) -> list[NcclSession]:
        """Sessions whose memory the new one waits for. One that was never called has only sockets
        and buffers of the host, and is freed: a group may be idle for many epochs."""
        if old.connected:
            return [*old.before, old]
        endings.free(self._library, [old])
        return old.before

    def discard(self, epoch: int) -> None:
        self._upcoming.discard(epoch)

    def abort(self, why: str) -> None:
        if self._session is not None:
            self._session.abort(why)

    def close(self) -> None:
        for epoch in self._upcoming.close():
            self.discard(epoch)
        old, self._session = self._session, None
        if old is not None:
            old.abort("the group was closed")
            endings.free(self._library, [*old.before, old])

    def stats(self) -> LinkStats:
        return replace(self._stats, leaked=sum(init.leaked for init in self._inits))
