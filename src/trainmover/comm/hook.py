# SPDX-License-Identifier: Apache-2.0
"""Where torch makes a gloo group, it gets one of ours; a script can not tell the difference.

torch's helper that makes groups constructs `ProcessGroupGloo`, and if what it gets is a whole
ProcessGroup, uses that as the group. So the one name it constructs is replaced, and the helper
around it tells the replacement which group is being made. Everything else that torch keeps about
a group (its backend's name, its ranks, its tags) is written by torch itself and stays as it is.

Also replaced: the rendezvous for `env://`, so that the runtime can lend its own store; the barrier
over the store after init; and what unpickles the objects
of `all_gather_object` and its kin, so that it never reads what a drained call has left. Channels
beside the groups are refused (`side_channels`). And Dynamo is told to leave our code alone.
"""

import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from trainmover.comm.failures import DrainedObject
from trainmover.comm.groups import Groups, Mode
from trainmover.comm.objects import goes_with_record
from trainmover.comm.shim import ShimGroup
from trainmover.comm.side_channels import SideChannelFinder
from trainmover.communicators import NCCL
from trainmover.errors import UserError
from trainmover.torch_internals import compiling
from trainmover.torch_internals.distributed.c10d import Store
from trainmover.torch_internals.distributed.making import (
    NcclOptions,
    check_making,
    replace_barrier,
    replace_batching,
    replace_making,
    replace_timeouts,
    replace_unpickling,
    serve_nccl,
    timeout_of,
)


class _Making(threading.local):
    """The group that torch is making in this thread."""

    groups: Groups | None = None
    name: str = ""
    ranks: tuple[int, ...] = ()
    taken: bool = False
    device: Any = None
    shown_as: str = "gloo"


_HARMLESS = {"fake", "undefined"}
"""Talk to nobody."""
_making = _Making()
_installed: list[Groups] = []


class _GlooDoor(type(c10d.ProcessGroupGloo)):  # type: ignore[misc]
    """Class of the replacement: inside the helper it makes our group, elsewhere stock gloo's."""

    stock: type = c10d.ProcessGroupGloo

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        groups = _making.groups
        if groups is None or _making.taken:
            return cls.stock(*args, **kwargs)
        _making.taken = True
        return _make(groups, _making.name, _making.ranks, *args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (cls.stock, ShimGroup))


class _Gloo(c10d.ProcessGroupGloo, metaclass=_GlooDoor):
    """Stands where torch looks for ProcessGroupGloo; has all its other attributes."""


class _NcclDoor(type):
    """Class of what stands where torch looks for ProcessGroupNCCL: as `_GlooDoor`."""

    stock: Any = None

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        groups = _making.groups
        if groups is None or _making.taken:
            return cls.stock(*args, **kwargs)
        _making.taken = True
        store, rank, size, options = args
        made = _making.name, _making.ranks
        return _make(groups, *made, store, rank, size, timeout=timeout_of(options))

    def __instancecheck__(cls, instance: object) -> bool:
        stock = cls.stock
        return isinstance(instance, ShimGroup if stock is None else (stock, ShimGroup))


def _nccl_door(stock: Any) -> Any:
    """torch's own class with another door; where torch has none, and a stand-in carries the calls,
    what torch asks of one."""
    _NcclDoor.stock = stock
    if stock is None:
        return _NcclDoor("ProcessGroupNCCL", (), {"Options": NcclOptions})

    class Door(type(stock), _NcclDoor):  # type: ignore[misc]
        __call__ = _NcclDoor.__call__
        __instancecheck__ = _NcclDoor.__instancecheck__

    return Door("ProcessGroupNCCL", (stock,), {})


def _make(
    groups: Groups,
    name: str,
    ranks: tuple[int, ...],
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta,
) -> Any:
    ranks = ranks or tuple(range(size))
    device, shown_as = _making.device, _making.shown_as
    return groups.create(name, rank, size, timeout, store, ranks, device=device, shown_as=shown_as)


def is_hooked() -> bool:
    """Whether torch's groups are served in this process."""
    return bool(_installed)


def hook_torch(groups: Groups) -> None:
    """Serve every gloo group that torch makes from now on. Call before `init_process_group`.

    Calling it again only exchanges the registry. Raises UserError when torch has a group already,
    or does not look inside as this was written for.
    """
    if _installed:
        _installed[0] = groups
        return
    check_making()
    if dist.is_initialized():
        raise UserError(
            "torch.distributed is initialised already",
            means="its groups are torch's own and cannot follow a change of members",
            do="import trainmover before calling init_process_group",
        )
    _installed.append(groups)
    compiling.leave_us_out()
    internals: Any = c10d
    internals.ProcessGroupGloo = _Gloo
    if dist.is_nccl_available() or _stand_in():
        serve_nccl(_nccl_door(getattr(internals, "ProcessGroupNCCL", None)))
    internals.rendezvous = _lending(internals.rendezvous)
    replace_making(_announcing)
    replace_barrier(_only_in_plain)
    replace_unpickling(_refusing_nothing)
    replace_batching(_as_one)
    replace_timeouts(_of_the_group)
    SideChannelFinder(lambda: _installed[0].mode is not Mode.PLAIN).install()


def _announcing(stock: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def helper(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        before = dict(vars(_making))
        served = _is_served(arguments["backend"])
        _making.groups = _installed[0] if served else None
        _making.name, _making.taken = str(arguments["group_name"]), False
        ranks = _making.ranks = tuple(arguments["global_ranks_in_group"])  # Of the world: none.
        takes_part = not ranks or dist.get_rank() in ranks
        if served and takes_part:
            _making.shown_as = _shown_as(arguments["backend"])
            _making.device = _device(arguments["backend"], arguments.get("device_id"))
        try:
            return stock(*args, **kwargs)
        finally:
            vars(_making).clear()
            vars(_making).update(before)

    return helper


def _stand_in() -> bool:
    """Whether a file is named that is to be libnccl: torch may have been built without."""
    return bool(os.environ.get("TRAINMOVER_NCCL"))


def _by_device(backend: Any) -> dict[str, str]:
    """Which backend the script wants for which kind of device."""
    config = c10d.BackendConfig(c10d.Backend(backend or "undefined"))
    return dict(config.get_device_backend_map())


def _shown_as(backend: Any) -> str:
    return "gloo" if _by_device(backend).get("cpu") == "gloo" else NCCL


def _device(backend: Any, asked: Any) -> Any:
    """Whose tensors NCCL carries in the group; None: all go over the host.

    A script that names no backend has no GPU in mind where there is none.
    """
    if _installed[0].gpu != NCCL or _by_device(backend).get("cuda") != NCCL:
        return None
    named = backend is not None and NCCL in str(backend)
    if not named and not (torch.cuda.is_available() or _stand_in()):
        return None
    from trainmover.comm.nccl.device import own_device  # Only who uses it pays for it.

    return own_device(asked, int(os.environ.get("LOCAL_RANK", "0")))


def _is_served(backend: Any) -> bool:
    """True when the group's CPU traffic goes over gloo: then ours carries all of it. So it is with
    one over nccl alone, in a job, or where NCCL was chosen for what carries it. One that torch
    would make without us is refused in a job; one that it would refuse itself is its affair."""
    devices = _by_device(backend)
    if devices.get("cpu") == "gloo":
        return True
    alone = set(devices.values()) - _HARMLESS == {NCCL} and dist.is_nccl_available()
    if alone and (_installed[0].mode is not Mode.PLAIN or _installed[0].gpu == NCCL):
        return True
    others = sorted(set(devices.values()) - _HARMLESS)
    if others and _installed[0].mode is not Mode.PLAIN and all(map(_is_there, others)):
        raise UserError(
            f"This group is to talk over {' and '.join(others)}: trainmover does not carry that.",
            means="Its members could not be replaced: a loss would leave the others waiting.",
            do='Name no backend, or "cpu:gloo,cuda:nccl": trainmover carries such a group, '
            "and takes tensors of a GPU through host memory.",
        )
    return False


def _is_there(backend: str) -> bool:
    """Whether torch has it, of its own or by a plug-in."""
    return c10d.is_backend_available(backend)


def _lending(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Any:
        lend = _installed[0].rendezvous_store
        if lend is None or not url.startswith("env://"):
            return stock(url, rank, world_size, **kwargs)
        return _lent(lend, rank, world_size)

    return rendezvous


def _lent(
    lend: Callable[[], Store], rank: int, world_size: int
) -> Iterator[tuple[Store, int, int]]:
    me = rank if rank >= 0 else int(os.environ["RANK"])
    size = world_size if world_size > 0 else int(os.environ["WORLD_SIZE"])
    yield lend(), me, size


def _only_in_plain(stock: Callable[..., None]) -> Callable[..., None]:
    """Its key has torch's own name of the group, and processes of one job differ there. Our groups
    have met when they are made, and nobody is there to meet in the sandbox."""

    @functools.wraps(stock)
    def barrier(*args: Any, **kwargs: Any) -> None:
        if _installed[0].mode is Mode.PLAIN:
            stock(*args, **kwargs)

    return barrier


def _refusing_nothing(stock: Callable[..., Any]) -> Callable[..., Any]:
    """A call that was given up leaves sizes and bytes of zero (`calls.given_up`), in any thread and
    for as long as somebody holds them; a pickle has at least a byte, and never begins with zero.
    So does one that a joiner passes by on its way, which gets another object."""

    @functools.wraps(stock)
    def tensor_to_object(tensor: Any, tensor_size: Any, group: Any) -> Any:
        groups, size = _installed[0], int(tensor_size)
        if size == 0 or tensor.numel() == 0 or int(tensor.reshape(-1)[0]) == 0:
            if not groups.roster.on_the_way:
                raise DrainedObject
            tensor, tensor_size = groups.objects.once_more()
        elif groups.mode is Mode.SANDBOX or (groups.mode is Mode.LIVE and goes_with_record(size)):
            groups.objects.came(tensor, size)
        return stock(tensor, tensor_size, group)

    return tensor_to_object


def _as_one(stock: Callable[..., Any]) -> Callable[..., Any]:
    """torch makes a batch of messages one call for groups of its own class only, and one after the
    other they would wait for each other over NCCL."""

    @functools.wraps(stock)
    def batch(p2p_op_list: Any) -> Any:
        group = p2p_op_list[0].group if p2p_op_list else None
        group = dist.group.WORLD if group is None else group
        if not isinstance(group, ShimGroup) or group.member.device is None:
            return stock(p2p_op_list)
        return group.as_one_call(lambda: stock(p2p_op_list))

    return batch


def _of_the_group(stock: Callable[..., None]) -> Callable[..., None]:
    """torch sets the timeout of a group's registered backends, which carry nothing in ours."""

    @functools.wraps(stock)
    def set_timeout(timeout: timedelta, group: Any = None) -> None:
        group = dist.group.WORLD if group is None else group
        if isinstance(group, ShimGroup):
            group.set_timeout(timeout)
        else:
            stock(timeout, group)

    return set_timeout
