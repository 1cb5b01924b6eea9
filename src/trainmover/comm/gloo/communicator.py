# SPDX-License-Identifier: Apache-2.0
"""A group carried by gloo: the whole group is built anew for every epoch.

This is the reference communicator. What it does per epoch: open a listener, publish its address
under `epoch/group` in the store, wait until every seat has done so, and only then let gloo connect.
The wait is ours, so it can be given up at any moment; inside gloo's constructor a seat that dies
holds us until the timeout, and the thread that sits there is counted as leaked until it returns.
"""

import functools
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from trainmover.comm.calls.threads import in_background
from trainmover.comm.communicator import LinkStats, View
from trainmover.comm.failures import Drained
from trainmover.comm.gloo.sockets import (
    OwnSocket,
    connections_between,
    cut,
    with_new_listeners,
    without_listeners,
)
from trainmover.comm.meet.meeting import Meeting
from trainmover.errors import PeerLost, UserError
from trainmover.torch_internals.distributed import c10d, gloo
from trainmover.torch_internals.distributed.c10d import (
    DebugLevel,
    HashStore,
    PrefixStore,
    ProcessGroupGloo,
    get_debug_level,
)

_GLOO = dist.ProcessGroup.BackendType.GLOO
_STOCK: Any = ProcessGroupGloo  # torch's stubs lag behind.
_LINGER_S = 1.0
_LOOPBACK = "127.0.0.1"


class GlooSession:
    """A gloo group within one epoch, as a full ProcessGroup.

    Not ProcessGroupGloo itself: frameworks call methods that only the full class has.
    """

    immediate = False
    prompt = False

    def __init__(self, view: View, backend: Any, sockets: list[OwnSocket]) -> None:
        self.epoch = view.epoch
        self.sockets = sockets
        self.aborted = False
        group = dist.ProcessGroup(view.store, view.seat, view.size)
        c10d.prefer(group, _GLOO)
        for device in _devices():
            c10d.add_backend(group, device, _GLOO, backend)
        self._group: Any = group
        self._sliced: dict[str, bool] = {}

    def issue(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return getattr(self._alive(), op)(*args, **kwargs)

    def _alive(self) -> Any:
        group = self._group
        if group is None:
            raise RuntimeError(f"Connection closed: epoch {self.epoch} has ended")
        return group

    def sliced(self, op: str, work: Any) -> bool:
        """gloo's collectives have a future and wait on it; its other work has neither."""
        known = self._sliced.get(op)
        if known is None:
            known = self._sliced[op] = _has_future(work)
        return known

    def abort(self, why: str) -> None:
        self.aborted = True
        cut(self.sockets)

    def backend(self, device: Any) -> Any:
        group, kinds = self._group, [known.type for known in _devices()]
        if group is None or torch.device(device).type not in kinds:
            return None
        return c10d.backend_of(group, device)

    def set_timeout(self, timeout: timedelta) -> None:
        for device in _devices():
            c10d.backend_of(self._alive(), device).set_timeout(timeout)

    def sequence_number(self) -> int:
        return c10d.sequence_number(self._alive())

    def take_group(self) -> list[Any]:
        """Leave the session hollow; whoever drops what is in the list pays for gloo's end."""
        group, self._group = [self._group], None
        return group


def _devices() -> list[torch.device]:
    names = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    return [torch.device(name) for name in names]


def _has_future(work: Any) -> bool:
    try:
        work.get_future()
    except (RuntimeError, AttributeError):
        return False
    return True


class _Build:
    """One attempt to meet the other seats of one view."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.meeting = Meeting(view)
        self.inside_gloo = False

    def run(self) -> GlooSession:
        self.meeting.take_seat()
        backend, sockets = self._connected("gloo")
        if get_debug_level() == DebugLevel.DETAIL:
            checker, more = self._connected("check")
            backend, sockets = gloo.checked(backend, checker), sockets + more
        return GlooSession(self.view, backend, sockets)

    def _connected(self, name: str) -> tuple[Any, list[OwnSocket]]:
        view = self.view
        devices, here = with_new_listeners(_create_devices)
        options = gloo.options(devices, view.timeout)
        everybody = self.meeting.exchange(f"{name}/at", "\n".join(here))
        there = {
            address
            for seat, listeners in enumerate(everybody)
            for address in listeners.split("\n")
            if seat != view.seat
        }
        self.meeting.check()
        self.inside_gloo = True
        try:
            store = PrefixStore(name, self.meeting.store)
            backend = ProcessGroupGloo(store, view.seat, view.size, options)
        except RuntimeError as error:
            raise PeerLost(f"group {view.group} could not connect: {error}") from error
        finally:
            self.inside_gloo = False
        c10d.begin_sequence(backend)
        return backend, connections_between(set(here), there)


def _create_devices() -> list[Any]:
    """The devices that stock gloo would use, connecting at once and not at the first call."""
    names = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    if not names:
        return [_STOCK.create_default_device(lazy_init=False)]
    return [_STOCK.create_device(interface=name, lazy_init=False) for name in names]


@functools.cache
def lone_backend(process: int) -> Any:
    """A gloo backend without peers, and without an ear for any; torch reads options there.

    process  the caller's process id: a forked child must not share its parent's
    """
    device = without_listeners(lambda: _STOCK.create_device(hostname=_LOOPBACK, lazy_init=True))
    return ProcessGroupGloo(HashStore(), 0, 1, gloo.options([device], timedelta(seconds=1)))


class GlooCommunicator:
    """Carries one group; see `Communicator` for the protocol."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: GlooSession | None = None
        self._links = 0
        self._builds: dict[int, _Build] = {}
        self._ready: dict[int, tuple[GlooSession, int, int]] = {}
        self._discarded: set[int] = set()
        self._stats = LinkStats()
        self._leaked = 0

    @property
    def session(self) -> GlooSession | None:
        return self._session

    def prepare(self, view: View) -> None:
        started = time.perf_counter_ns()
        build = _Build(view)
        with self._lock:
            if view.epoch in self._ready:
                return
            if view.epoch in self._discarded:
                raise Drained(f"epoch {view.epoch} was given up")
            if view.epoch in self._builds:
                raise UserError(f"epoch {view.epoch} of group {view.group} is being prepared")
            self._builds[view.epoch] = build
        try:
            session = build.run()
        finally:
            with self._lock:
                given_up = self._builds.pop(view.epoch, None) is not build
        if given_up:
            self._retire(session)
            raise Drained(f"epoch {view.epoch} was given up")
        spent = time.perf_counter_ns() - started
        with self._lock:
            self._ready[view.epoch] = (session, view.size - 1, spent)

    def discard(self, epoch: int) -> None:
        with self._lock:
            self._discarded.add(epoch)
            build = self._builds.pop(epoch, None)
            ready = self._ready.pop(epoch, None)
        if build is not None:
            self._leaked += build.inside_gloo
            build.meeting.give_up()
        if ready is not None:
            self._retire(ready[0])

    def switchover(self, epoch: int) -> None:
        started = time.perf_counter_ns()
        with self._lock:
            session, links, prepare_ns = self._ready.pop(epoch)
            old, closed = self._session, self._links
            self._session, self._links = session, links
        if old is not None:
            self._retire(old)
        spent = time.perf_counter_ns() - started
        self._stats = LinkStats(links, 0, closed, prepare_ns, spent)

    def abort(self, why: str) -> None:
        if self._session is not None:
            self._session.abort(why)

    def close(self) -> None:
        for epoch in [*self._builds, *self._ready]:
            self.discard(epoch)
        old, self._session, self._links = self._session, None, 0
        if old is not None:
            self._retire(old)

    def stats(self) -> LinkStats:
        return replace(self._stats, leaked=self._leaked)

    def _retire(self, session: GlooSession) -> None:
        """Destroy in the background: gloo joins its threads, and one may wait out its timeout."""
        in_background("retire", functools.partial(_destroy, session, session.take_group()))


def _destroy(session: GlooSession, group: list[Any]) -> None:
    """After an orderly end the other seats may still be reading what this one sent last."""
    if not session.aborted:
        time.sleep(_LINGER_S)
    session.abort("the epoch has ended")
    group.clear()
