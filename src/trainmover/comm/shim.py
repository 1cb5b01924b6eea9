# SPDX-License-Identifier: Apache-2.0
"""The process group that frameworks hold: stock modules keep it while its members change.

It carries no bytes. Every operation goes to the session of the current epoch, or to the tap, or,
while the job drains, completes at once with whatever is in the buffers. torch finds the operations
by name, in Python and from C++, so the class is filled with one method per name that the installed
torch knows.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.distributed_c10d import GroupName

from trainmover.comm.calls.arguments import ALL_OPS, given_up, outputs_of
from trainmover.comm.calls.settled import Request, SettledWork
from trainmover.comm.calls.watch import Watch
from trainmover.comm.gloo.communicator import lone_backend
from trainmover.comm.member import Member
from trainmover.torch_internals.autograd import profiling
from trainmover.torch_internals.distributed import c10d
from trainmover.torch_internals.distributed.c10d import PrefixStore, ProcessGroup, Store

if TYPE_CHECKING:
    from trainmover.comm.groups import Groups

_BLOCKING = frozenset({"monitored_barrier"})


@c10d.answers_as_group
class ShimGroup(ProcessGroup):
    """A c10d process group whose connections are exchanged underneath.

    store  the group's own part of the script's store; only handed back to torch
    shown_as  the backend that the script has asked for
    """

    def __init__(
        self, groups: "Groups", member: Member, store: Store, shown_as: str = "gloo"
    ) -> None:
        super().__init__(member.seat, member.size)  # type: ignore[call-arg]
        self._store = store
        self._groups = groups
        self._member = member
        self._name = member.name
        self._shown_as = shown_as
        self.options = SimpleNamespace()
        kinds = ProcessGroup.BackendType
        # torch reads names, devices and options from a group's registered backend, and that must
        # never change: it is not the one that works. A call that reaches it has found a way around.
        anchor = c10d.anchor(member.seat, member.size)
        c10d.add_backend(self, torch.device("cpu"), kinds.CUSTOM, anchor)
        c10d.add_backend(self, torch.device("cuda"), kinds.GLOO, lone_backend(os.getpid()))

    def getBackendName(self) -> str:
        return self._shown_as

    @property
    def group_name(self) -> GroupName:
        """torch keeps it in a backend, and one of ours serves all groups."""
        return GroupName(self._name)

    def set_name(self, name: str) -> None:
        self._name = name
        c10d.name_group(self, name)

    @property
    def member(self) -> Member:
        """What the registry knows of it."""
        return self._member

    def told(self) -> tuple[str, str]:
        """The name by which every process knows this group, and who is in it, in words; the name is
        "" if it was destroyed. See `places`."""
        return self._groups.roster.told(self._member)

    def get_group_store(self) -> Store:
        return self._store

    def backend_for(self, device: torch.device) -> Any:
        """The backend that works now: for reading options. Do not keep it over an epoch."""
        session = self._member.communicator.session
        working = session.backend(device) if session is not None else None
        return working if working is not None else c10d.backend_of(self, device)

    def sequence_number(self) -> int:
        session = self._member.communicator.session
        return session.sequence_number() if session is not None else 0

    def begin_sequence(self) -> None:
        """Every session sets its own when it connects."""

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the timeout of this and every coming epoch."""
        self._member.timeout = timeout
        session = self._member.communicator.session
        if session is not None:
            session.set_timeout(timeout)

    def as_one_call(self, calls: Callable[[], Any]) -> Any:
        """Make the messages that `calls` sends and receives one call, where they would wait for
        each other; what it returns."""
        watch = self._member.watch
        if watch is None or self._member.device is None or self._groups.draining:
            return calls()
        from trainmover.comm.by_device import as_one_call

        try:
            with as_one_call(watch.session):
                made = calls()
        except Exception as error:
            known = watch.judge(error)
            if known is error:
                raise
            if known is not None:
                raise known from error
        return made

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> "ShimGroup | None":
        """A group of some of this group's ranks; None for those outside."""
        seats = sorted(ranks)
        if self._member.seat not in seats:
            return None
        name = group_name or f"{self._member.name}:split:{'_'.join(map(str, seats))}"
        store = PrefixStore(f"{name}/", self.get_group_store())
        part = self._groups.create(
            name,
            seats.index(self._member.seat),
            len(seats),
            timeout or self._member.timeout,
            store,
            tuple(self._member.ranks[seat] for seat in seats) if self._member.ranks else (),
            device=self._member.device,
            shown_as=self._shown_as,
        )
        part.set_name(name)
        c10d.describe_group(part, group_desc or f"{self.group_desc}:split")
        return part

    def shutdown(self) -> None:
        self._groups.remove(self._member)

    def abort(self) -> None:
        self._member.communicator.abort("the script aborted the group")
        self._groups.remove(self._member)


def _carry(group: ShimGroup, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    member = group._member
    watch = member.watch  # Read first: what starts below belongs to this epoch and no other.
    groups = group._groups
    if watch is None or groups.draining or groups.tap is not None:
        return _carry_specially(group, op, args, kwargs)
    if not groups.watching:
        return watch.session.issue(op, args, kwargs)
    if op in _BLOCKING:
        return watch.run(Request(op, args, kwargs))
    return watch.start(Request(op, args, kwargs))


def _carry_specially(
    group: ShimGroup, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Draining, listened to, or not connected."""
    member, groups = group._member, group._groups
    watch = member.watch
    if groups.draining:
        groups.cut_short()
        return _given_up(group, op, args, kwargs)
    call = groups.describe(member, op, args, kwargs)
    if call is not None and groups.serves(call):
        return _at_once(op, args, kwargs, source=call.source)
    if watch is None:
        groups.connect_apart(member, op)
        watch = member.watch
        if watch is None:  # The epoch has ended meanwhile.
            groups.cut_short()
            return _given_up(group, op, args, kwargs)
    request = Request(op, args, kwargs, call)
    if call is None:
        return _make(watch, request)
    try:
        call.handle = _make(watch, request)
    except Exception as error:
        call.error = error
        groups.finished(call)
        raise
    return call.handle


def _make(watch: Watch, request: Request) -> Any:
    return watch.run(request) if request.op in _BLOCKING else watch.start(request)


def _at_once(
    op: str, args: Sequence[Any], kwargs: Mapping[str, Any], source: int = 0
) -> SettledWork | None:
    return None if op in _BLOCKING else SettledWork(outputs_of(op, args, kwargs), source)


def _given_up(
    group: ShimGroup, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> SettledWork | None:
    group._groups.gave_up()
    outputs = given_up(op, args, kwargs, group._member.seat)
    return None if op in _BLOCKING else SettledWork(outputs)


def _method(op: str) -> Callable[..., Any]:
    def carry(self: ShimGroup, *args: Any, **kwargs: Any) -> Any:
        watch, groups = self._member.watch, self._groups
        groups.calls += 1
        if groups.on_call is not None:
            groups.on_call()
        if (
            watch is None
            or watch.prompt is None
            or groups.draining
            or groups.tap is not None
            or profiling()
        ):
            return _carry(self, op, args, kwargs)
        try:
            return watch.prompt.direct[op](*args, **kwargs)
        except Exception as error:
            known = watch.judge(error)
            if known is error:
                raise
            if known is not None:
                raise known from error
            return _given_up(self, op, args, kwargs)

    carry.__name__ = op
    carry.__qualname__ = f"ShimGroup.{op}"
    return torch.compiler.disable(carry)  # type: ignore[no-any-return, no-untyped-call]


for _op in ALL_OPS:
    setattr(ShimGroup, _op, _method(_op))
