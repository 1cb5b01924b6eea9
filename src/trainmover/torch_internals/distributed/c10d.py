# SPDX-License-Identifier: Apache-2.0
"""torch's process groups, handles and stores; and the private names by which torch asks ours.

The classes are public, but typed only where they are private.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    BarrierOptions,
    BroadcastOptions,
    DebugLevel,
    FakeProcessGroup,
    HashStore,
    PrefixStore,
    ProcessGroup,
    ProcessGroupGloo,
    Reducer,
    ReduceScatterOptions,
    Store,
    TCPStore,
    Work,
    _compute_bucket_assignment_by_size,
    get_debug_level,
)
from torch.distributed.distributed_c10d import GroupName

from trainmover.torch_internals.check import unknown

__all__ = [
    "AllgatherOptions",
    "AllreduceOptions",
    "BarrierOptions",
    "BroadcastOptions",
    "DebugLevel",
    "HashStore",
    "PrefixStore",
    "ProcessGroup",
    "ProcessGroupGloo",
    "ReduceScatterOptions",
    "Reducer",
    "Store",
    "TCPStore",
    "Work",
    "_compute_bucket_assignment_by_size",
    "get_debug_level",
]

_T = TypeVar("_T")

ALL_GATHER_BASE, REDUCE_SCATTER_BASE = "_allgather_base", "_reduce_scatter_base"
"""Methods of a group: all_gather_single and reduce_scatter_single, as they were called first."""

_SINCE_2_13 = frozenset(
    {
        "all_gather_single",
        "all_gather_single_coalesced",
        "all_to_all_single",
        "reduce_scatter_single",
        "reduce_scatter_single_coalesced",
    }
)

_GROUP = {
    "_get_backend": "backend_for",
    "_get_sequence_number_for_group": "sequence_number",
    "_set_group_name": "set_name",
    "_set_sequence_number_for_group": "begin_sequence",
}
_WORK = {
    "_get_duration": "duration",
    "_get_op_type": "kind",
    "_source_rank": "source_rank",
}


def served(operations: tuple[str, ...]) -> tuple[str, ...]:
    """Those of these methods that a group of the installed torch has.

    Raises TrainmoverError if one is missing that every version has.
    """
    missing = [name for name in operations if not hasattr(ProcessGroup, name)]
    if lost := [name for name in missing if name not in _SINCE_2_13]:
        raise unknown(f"{name} in ProcessGroup" for name in lost)
    return tuple(name for name in operations if name not in missing)


def answers_as_group(kind: type[_T]) -> type[_T]:
    """torch asks a group of this class by private names: they are its methods of plain names."""
    return _named_as(kind, _GROUP)


def answers_as_work(kind: type[_T]) -> type[_T]:
    """The same of a handle. Of what it has no such method, torch's own stays."""
    return _named_as(kind, _WORK)


def _named_as(kind: type[_T], names: Mapping[str, str]) -> type[_T]:
    own = dict(vars(kind))
    for private, plain in names.items():
        if plain in own:
            setattr(kind, private, own[plain])
    return kind


# --- groups ---------------------------------------------------------------------------------------


def anchor(seat: int, size: int) -> Any:
    """A backend that refuses every call."""
    fake: Any = FakeProcessGroup  # torch's stubs lag behind.
    options = fake.Options()
    options.error_on_collective = True
    return fake._create_internal(seat, size, options)


def add_backend(group: ProcessGroup, device: torch.device, kind: Any, backend: Any) -> None:
    """What serves the group's calls on tensors of that device."""
    group._register_backend(device, kind, backend)


def prefer(group: ProcessGroup, kind: Any) -> None:
    """What serves calls without a tensor."""
    group._set_default_backend(kind)


def backend_of(group: Any, device: torch.device) -> Any:
    """As torch keeps it, whatever the group's own class says."""
    return ProcessGroup._get_backend(group, device)


def sequence_number(group: Any) -> int:
    """How many calls its backend has counted."""
    return int(group._get_sequence_number_for_group())


def begin_sequence(backend: Any) -> None:
    """Its calls are counted from now on."""
    backend._set_sequence_number_for_group()


def name_group(group: ProcessGroup, name: str) -> None:
    """In what torch keeps of the group, whatever the group's own class says."""
    ProcessGroup._set_group_name(group, GroupName(name))


def describe_group(group: ProcessGroup, text: str) -> None:
    """For logs."""
    group._set_group_desc(text)


def premul_factor(reduction: Any) -> Any:
    """What ReduceOp.PREMUL_SUM multiplies by: a number, or a tensor of one element."""
    return reduction.__getstate__()[1]


# --- handles --------------------------------------------------------------------------------------


def duration_of(work: Any) -> float:
    """In ms, if torch measures it."""
    return float(work._get_duration())


def kind_of(work: Any) -> Any:
    """torch's enumeration of operations."""
    return work._get_op_type()
