# SPDX-License-Identifier: Apache-2.0
"""How torch makes a process group: the functions of distributed_c10d that are replaced by ours."""

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed
from torch._C._distributed_c10d import _SymmetricMemory
from torch.distributed import distributed_c10d

from trainmover.torch_internals.check import unknown

_ARGUMENTS = {"backend", "group_name", "global_ranks_in_group"}
_MADE = "ProcessGroupGloo"
_c10d: Any = distributed_c10d

Stock = Callable[..., Any]


def check_making() -> None:
    """Raises TrainmoverError if the function that makes groups does it in another way."""
    helper = _c10d._new_process_group_helper
    missing = _ARGUMENTS - inspect.signature(helper).parameters.keys()
    if missing:
        raise unknown(f"{name} among the arguments that make a group" for name in sorted(missing))
    if _MADE not in helper.__code__.co_names:
        raise unknown([f"{_MADE} in the function that makes a group"])


def replace_making(around: Callable[[Stock], Stock]) -> None:
    """Of any group, with its backends."""
    _c10d._new_process_group_helper = around(_c10d._new_process_group_helper)


def serve_nccl(door: Any) -> None:
    """`door` stands where torch looks for ProcessGroupNCCL, also in a torch that has none."""
    _c10d.ProcessGroupNCCL = door
    _c10d._NCCL_AVAILABLE = True


class NcclOptions:
    """What torch fills in for a group over nccl, where it has no such class itself."""

    _timeout = timedelta(minutes=10)
    is_high_priority_stream = False


def timeout_of(options: Any) -> timedelta:
    """That torch has filled in, of options for a group over nccl."""
    timeout: timedelta = options._timeout
    return timeout


def replace_barrier(around: Callable[[Stock], Stock]) -> None:
    """Over the store, behind init_process_group."""
    _c10d._store_based_barrier = around(_c10d._store_based_barrier)


def replace_batching(around: Callable[[Stock], Stock]) -> None:
    """Of sends and receives that are to be one call; scripts find it in two places."""
    _c10d.batch_isend_irecv = torch.distributed.batch_isend_irecv = around(_c10d.batch_isend_irecv)


def replace_timeouts(around: Callable[[Stock], Stock]) -> None:
    """Of a group that is there already."""
    _c10d._set_pg_timeout = around(_c10d._set_pg_timeout)


def replace_unpickling(around: Callable[[Stock], Stock]) -> None:
    """Of what all_gather_object and its kin have received."""
    _c10d._tensor_to_object = around(_c10d._tensor_to_object)


def replace_symmetric_memory(around: Callable[[Stock], Stock]) -> None:
    """What allocates and connects it, from Python; operators in C++ take what these have made."""
    memory: Any = _SymmetricMemory
    for name in ("empty_strided_p2p", "get_mempool_allocator", "rendezvous"):
        if hasattr(memory, name):
            setattr(memory, name, staticmethod(around(getattr(memory, name))))
