# SPDX-License-Identifier: Apache-2.0
"""Calls in words that two processes can compare, and hashes over many of them.

Words hold nothing that only one rank knows: no group's name, and a peer as its distance, so that
the middle stages of a pipeline, and all members of a ring, say the same.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import xxhash

from trainmover.comm.calls.arguments import is_in_place
from trainmover.comm.calls.tap import Call

CallId = tuple[int, int]
"""Number of the group in this process, number of the call in the group."""

_TO_A_PEER = ("send", "recv")
_UNEVEN = ("alltoall", "alltoall_base", "all_to_all_single")


def id_of(call: Call) -> CallId:
    """The same on every rank of a role, in every run of the script."""
    return (call.number, call.seq)


def group_of(call: Call) -> str:
    """The call's group in a trace."""
    return f"{call.number}/{call.size}"


def is_uneven(call: Call) -> bool:
    """Whether the call's data decide how large its tensors are: the load of experts."""
    return call.op in _UNEVEN


def what_of(call: Call) -> str:
    """Operation, tensors, root or distance of the peer: "broadcast of 2x3 float32, root 0".

    How many rows are exchanged unevenly is left out: it changes from step to step and from rank to
    rank, and in the sandbox with values that are made up.
    """
    shapes, dtypes, *_ = call.meta
    if is_uneven(call):
        shapes = tuple(("*", *shape[1:]) for shape in shapes)
    return _words(call, shapes, dtypes)


def _words(call: Call, shapes: Any, dtypes: Any) -> str:
    _, _, root, reduction = call.meta
    if is_in_place(call.op):  # What goes in comes out: say it once.
        shapes, dtypes = shapes[-len(call.outputs) :], dtypes[-len(call.outputs) :]
    words = f"{call.op} of {_tensors(shapes, dtypes)}"
    if root is not None and call.op in _TO_A_PEER:
        distance = (root - call.seat) % max(call.size, 1)
        words += f", {distance} seats on"
    elif root is not None:
        words += f", root {root}"
    return words if reduction is None else f"{words}, {reduction}"


def _tensors(shapes: Any, dtypes: Any) -> str:
    each = [
        f"{'x'.join(map(str, shape)) or 'scalar'} {str(dtype).removeprefix('torch.')}"
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    runs = [(words, len(list(run))) for words, run in itertools.groupby(each)]
    return " + ".join(f"{n} * {words}" if n > 1 else words for words, n in runs) or "nothing"


def trace_of(calls: Iterable[tuple[str, str]]) -> str:
    """Hash of (group, call) pairs: 16 hex digits.

    The order counts within each group. Between groups it may differ from run to run, where calls
    are made from several threads.
    """
    by_group: dict[str, list[str]] = {}
    for group, what in calls:
        by_group.setdefault(group, []).append(what)
    digest = xxhash.xxh3_64()
    for group, whats in sorted(by_group.items()):
        for word in (group, str(len(whats)), *whats):
            digest.update(f"{word}\0".encode())
    return digest.hexdigest()
