# SPDX-License-Identifier: Apache-2.0
"""What the arguments of a ProcessGroup method mean: which tensors go in and which come out.

torch calls the same operation by several names and with several signatures, and adds names from
version to version. Everything that must know more about a call than its name asks here. None of
it is on the hot path.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from trainmover.comm.calls.tap import Call
from trainmover.torch_internals.distributed.c10d import ALL_GATHER_BASE, REDUCE_SCATTER_BASE, served

_IN_PLACE = ("allreduce", "allreduce_coalesced", "broadcast", "reduce")
_GATHER = (
    "allgather",
    ALL_GATHER_BASE,
    "all_gather_single",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "all_gather_single_coalesced",
    "gather",
)
_OUT_THEN_IN = (
    *_GATHER,
    "scatter",
    "reduce_scatter",
    REDUCE_SCATTER_BASE,
    "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced",
    "reduce_scatter_single_coalesced",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
)
_SEND = ("send",)
_RECEIVE = ("recv", "recv_anysource")
MESSAGES = (*_SEND, *_RECEIVE)
"""From one rank to another, which the others do not make."""
_EMPTY = ("barrier", "monitored_barrier")

ALL_OPS = served((*_IN_PLACE, *_OUT_THEN_IN, *MESSAGES, *_EMPTY))
"""Every operation of the installed torch that a group must carry."""


def flat(value: Any) -> Iterator[Tensor]:
    """The tensors in nested lists, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from flat(part)


def argument(args: Sequence[Any], kwargs: Mapping[str, Any], index: int, word: str) -> Any:
    """By its place, or by a word in its name; None when it was not given."""
    if len(args) > index:
        return args[index]
    return next((value for name, value in kwargs.items() if word in name.lower()), None)


def inputs_of(op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that are read, in the order of the arguments."""
    if op in _IN_PLACE or op in _SEND:
        return list(flat(argument(args, kwargs, 0, "tensor")))
    if op in _OUT_THEN_IN:
        return list(flat(argument(args, kwargs, 1, "input")))
    return []


def outputs_of(op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that are written; for calls in place they are also the inputs."""
    if op in _IN_PLACE or op in _RECEIVE:
        return list(flat(argument(args, kwargs, 0, "tensor")))
    if op in _OUT_THEN_IN:
        return list(flat(argument(args, kwargs, 0, "output")))
    return []


def given_up(op: str, args: Sequence[Any], kwargs: Mapping[str, Any], seat: int) -> list[Tensor]:
    """Outputs of a call that a drain has ended: what they hold, but zero where they are integers.

    A script takes those for sizes (how many rows an expert gets, how long a pickle is), and memory
    that nobody has written, or only in part, may be any size. Bytes become zero with them: no
    pickle begins so, see `hook`. What this seat only gave stays: a broadcast's root has its own.
    """
    outputs = outputs_of(op, args, kwargs)
    if not only_reads(op, args, kwargs, seat):
        blank(outputs)
    return outputs


def gathers(op: str) -> bool:
    """Whether what the call writes is what each seat was given, side by side."""
    return op in _GATHER


def gives_a_value(op: str) -> bool:
    """Whether the call writes anything, on some seat."""
    return op not in (*_SEND, *_EMPTY)


def is_in_place(op: str) -> bool:
    """Whether what the call writes is what it was given."""
    return op in _IN_PLACE


def only_reads(op: str, args: Sequence[Any], kwargs: Mapping[str, Any], seat: int) -> bool:
    """Whether the call, which is one in place, writes nothing at this seat."""
    if op not in ("broadcast", "reduce"):
        return False
    root, _ = _root_and_reduction(args, kwargs)
    return bool((root == seat) == (op == "broadcast"))


def blank(outputs: Iterable[Tensor]) -> None:
    """Zero those that hold no floating-point numbers."""
    with torch.inference_mode():  # Also of tensors that were made in it; and no version counts.
        for output in outputs:
            if not (output.is_floating_point() or output.is_complex()):
                output.zero_()


def _root_and_reduction(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    root: Any = None
    reduction: Any = None
    for value in (*args, *kwargs.values()):
        if isinstance(value, int):
            root = value if root is None else root
        elif isinstance(value, (ReduceOp, ReduceOp.RedOpType)):
            reduction = _reduction_name(value)
        elif hasattr(value, "rootRank") or hasattr(value, "reduceOp"):
            root = getattr(value, "rootRank", root)
            reduction = _reduction_name(value.reduceOp) if hasattr(value, "reduceOp") else reduction
    return root, reduction


def _reduction_name(reduction: Any) -> str:
    """The operator in a word that is the same in every process."""
    kind = getattr(reduction, "op", reduction)  # ReduceOp wraps a RedOpType
    return str(getattr(kind, "name", kind))


def describe(group: str, seq: int, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """The call as a tap sees it."""
    inputs, outputs = inputs_of(op, args, kwargs), outputs_of(op, args, kwargs)
    tensors = [*inputs, *outputs]
    shapes = tuple(tuple(tensor.shape) for tensor in tensors)
    dtypes = tuple(str(tensor.dtype) for tensor in tensors)
    root, reduction = _root_and_reduction(args, kwargs)
    return Call(group, seq, op, (shapes, dtypes, root, reduction), inputs, outputs)
