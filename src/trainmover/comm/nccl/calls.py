# SPDX-License-Identifier: Apache-2.0
"""Operations: what torch's arguments mean, in calls of libnccl.

One function per operation, taking the `Stage` of the call and the arguments of the ProcessGroup
method. What is only moved goes as bytes. Lists are one ncclGroup of single calls.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainmover.comm.calls.arguments import ALL_OPS, argument, flat
from trainmover.comm.native.checks import Checks
from trainmover.comm.native.options import options_of
from trainmover.comm.nccl.library import MAX, UINT8
from trainmover.comm.nccl.stage import Stage
from trainmover.comm.nccl.types import Reduction, nbytes
from trainmover.torch_internals.distributed.c10d import ALL_GATHER_BASE, REDUCE_SCATTER_BASE

Args = Sequence[Any]
Named = Mapping[str, Any]


def _allreduce(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("allreduce", stage.size), options_of(args[1:], named)
    tensor = checks.one(tensors := argument(args, named, 0, "tensor"), "tensor")
    _all_reduce_one(stage, tensor, options.reduction)
    return stage.launch(tensors, options)


def _all_reduce_one(stage: Stage, tensor: Tensor, asked: Any) -> None:
    reduction, whole = Reduction(asked, tensor.dtype), stage.updates(tensor)
    at, count, code = whole.data_ptr(), reduction.count(whole), reduction.code
    operator = stage.operator(reduction)
    stage.call(lambda nccl, on: nccl.all_reduce(at, at, count, code, operator(), *on))


def _allreduce_coalesced(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("allreduce_coalesced", stage.size), options_of(args[1:], named)
    tensors = argument(args, named, 0, "tensor")
    if not tensors:
        checks.refuse("requires non-empty tensor list")
    for index, tensor in enumerate(tensors):
        if checks.dense(tensor).dtype != tensors[0].dtype:
            checks.refuse(f"tensor type at index {index}: tensors must all have the same type")
        _all_reduce_one(stage, tensor, options.reduction)
    return stage.launch(tensors, options)


def _broadcast(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("broadcast", stage.size), options_of(args[1:], named)
    tensor = checks.one(tensors := argument(args, named, 0, "tensor"), "tensor")
    root = checks.seat(options.root, "root rank")
    stage.only_reads = root == stage.seat
    whole = stage.reads(tensor) if stage.only_reads else stage.writes(tensor)
    at, count = whole.data_ptr(), nbytes(whole)
    stage.call(lambda nccl, on: nccl.broadcast(at, at, count, UINT8, root, *on))
    return stage.launch(tensors, options)


def _reduce(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("reduce", stage.size), options_of(args[1:], named)
    tensor = checks.one(tensors := argument(args, named, 0, "tensor"), "tensor")
    root, reduction = (
        checks.seat(options.root, "root rank"),
        Reduction(options.reduction, tensor.dtype),
    )
    stage.only_reads = root != stage.seat
    whole = stage.reads(tensor) if stage.only_reads else stage.updates(tensor)
    at, count, code = whole.data_ptr(), reduction.count(whole), reduction.code
    operator = stage.operator(reduction)
    stage.call(lambda nccl, on: nccl.reduce(at, at, count, code, operator(), root, *on))
    return stage.launch(tensors, options)


def _gather_one(stage: Stage, checks: Checks, output: Tensor, given: Tensor) -> None:
    checks.whole(checks.dense(output), checks.dense(given), "output")
    source, target = stage.reads(given), stage.writes(output)
    at, to, count = source.data_ptr(), target.data_ptr(), nbytes(source)
    stage.call(lambda nccl, on: nccl.all_gather(at, to, count, UINT8, *on))


def _scatter_one(stage: Stage, checks: Checks, output: Tensor, given: Tensor, asked: Any) -> None:
    checks.whole(checks.dense(given), checks.dense(output), "input")
    reduction, source, target = (
        Reduction(asked, output.dtype),
        stage.reads(given),
        stage.writes(output),
    )
    at, to, code = source.data_ptr(), target.data_ptr(), reduction.code
    count, operator = reduction.count(target), stage.operator(reduction)
    stage.call(lambda nccl, on: nccl.reduce_scatter(at, to, count, code, operator(), *on))


def _all_gather_single(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("all_gather_single", stage.size), options_of(args[2:], named)
    output, given = argument(args, named, 0, "output"), argument(args, named, 1, "input")
    _gather_one(stage, checks, output, given)
    return stage.launch(output, options)


def _reduce_scatter_single(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("reduce_scatter_single", stage.size), options_of(args[2:], named)
    output, given = argument(args, named, 0, "output"), argument(args, named, 1, "input")
    _scatter_one(stage, checks, output, given, options.reduction)
    return stage.launch(output, options)


def _pairs(checks: Checks, args: Args, named: Named) -> list[tuple[Tensor, Tensor]]:
    outputs, given = argument(args, named, 0, "output"), argument(args, named, 1, "input")
    if not outputs or len(outputs) != len(given):
        checks.refuse("requires as many output tensors as input tensors, and at least one")
    return list(zip(outputs, given, strict=True))


def _gather_singles(stage: Stage, args: Args, named: Named) -> Any:
    checks = Checks("all_gather_single_coalesced", stage.size)
    for output, given in (pairs := _pairs(checks, args, named)):
        _gather_one(stage, checks, output, given)
    return stage.launch([output for output, _ in pairs], options_of(args[2:], named))


def _scatter_singles(stage: Stage, args: Args, named: Named) -> Any:
    checks = Checks("reduce_scatter_single_coalesced", stage.size)
    options = options_of(args[2:], named)
    for output, given in (pairs := _pairs(checks, args, named)):
        _scatter_one(stage, checks, output, given, options.reduction)
    return stage.launch([output for output, _ in pairs], options)


def _allgather(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("allgather", stage.size), options_of(args[2:], named)
    given = checks.one(argument(args, named, 1, "input"), "input tensor")
    lists = argument(args, named, 0, "output")
    tensors = _one_for_each(checks, lists, given, "output")
    if _are_even(tensors, given):
        _gather_into_list(stage, given, tensors)
    else:
        _gather_uneven(stage, given, tensors)
    return stage.launch(lists, options)


def _one_for_each(checks: Checks, lists: Any, like: Tensor, what: str) -> Sequence[Tensor]:
    """Return the only list: a tensor for every seat, of one type, and of any size."""
    tensors = checks.nested(lists, what)
    if len(tensors) != checks.size:
        checks.refuse(f"requires {checks.size} {what} tensors, one for every rank")
    for index, tensor in enumerate(tensors):
        if checks.dense(tensor).dtype != like.dtype:
            checks.refuse(f"{what} tensor {index} has type {tensor.dtype}, not {like.dtype}")
    return tensors


def _are_even(tensors: Sequence[Tensor], like: Tensor) -> bool:
    """Tell whether sizes are even. All seats answer alike: each has all the sizes, and its own is
    that of `like`."""
    return all(tensor.shape == like.shape for tensor in tensors)


def _gather_uneven(stage: Stage, given: Tensor, tensors: Sequence[Tensor]) -> None:
    """Broadcast from every seat, as one call."""
    Checks("allgather", stage.size).alike(tensors[stage.seat], given, stage.seat)
    source = stage.reads(given).data_ptr()
    for seat, tensor in enumerate(tensors):
        target = stage.writes(tensor)
        at = source if seat == stage.seat else target.data_ptr()
        _broadcast_one(stage, at, target, seat)


def _broadcast_one(stage: Stage, at: int, target: Tensor, root: int) -> None:
    to, count = target.data_ptr(), nbytes(target)
    if count:
        stage.call(lambda nccl, on: nccl.broadcast(at, to, count, UINT8, root, *on))


def _gather_into_list(stage: Stage, given: Tensor, tensors: Sequence[Tensor]) -> None:
    source = stage.reads(given)
    rows = stage.fills(stage.holds(source.new_empty((stage.size, *source.shape))))
    at, to, count = source.data_ptr(), rows.data_ptr(), nbytes(source)
    stage.call(lambda nccl, on: nccl.all_gather(at, to, count, UINT8, *on))
    for tensor, row in zip(tensors, rows, strict=True):
        stage.then_copies(tensor, row)


def _allgather_coalesced(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("allgather_coalesced", stage.size), options_of(args[2:], named)
    lists, given = argument(args, named, 0, "output"), argument(args, named, 1, "input")
    if not given:
        checks.refuse("requires non-empty input tensor list")
    if len(lists) != checks.size:
        checks.refuse("output lists should be equal to world size")
    for outputs in lists:
        if len(outputs) != len(given):
            checks.refuse(
                f"invalid output size: (expected length {len(given)}, got {len(outputs)})"
            )
        for index, tensor in enumerate(outputs):
            checks.alike(tensor, given[index], index)
    for index, tensor in enumerate(given):
        _gather_into_list(stage, tensor, [outputs[index] for outputs in lists])
    return stage.launch(lists, options)


def _reduce_scatter(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("reduce_scatter", stage.size), options_of(args[2:], named)
    output = checks.one(outputs := argument(args, named, 0, "output"), "output tensor")
    given = _one_for_each(checks, argument(args, named, 1, "input"), output, "input")
    parts = [stage.reads(tensor) for tensor in given]
    if _are_even(parts, output):
        _scatter_one(stage, checks, output, stage.holds(torch.stack(parts)), options.reduction)
    else:
        _scatter_uneven(stage, checks, output, parts, options.reduction)
    return stage.launch(outputs, options)


def _scatter_uneven(
    stage: Stage, checks: Checks, output: Tensor, parts: Sequence[Tensor], asked: Any
) -> None:
    """Reduce to every seat, as one call."""
    checks.alike(parts[stage.seat], output, stage.seat)
    reduction, target = Reduction(asked, output.dtype), stage.writes(output)
    operator = stage.operator(reduction)
    for seat, part in enumerate(parts):
        if part.numel():
            _reduce_one(stage, part, target, seat, reduction, operator)


def _reduce_one(
    stage: Stage,
    part: Tensor,
    target: Tensor,
    root: int,
    reduction: Reduction,
    operator: Callable[[], int],
) -> None:
    at, count, code = part.data_ptr(), reduction.count(part), reduction.code
    to = target.data_ptr() if root == stage.seat else at
    stage.call(lambda nccl, on: nccl.reduce(at, to, count, code, operator(), root, *on))


def _send_to(stage: Stage, tensor: Tensor, seat: int) -> None:
    at, count = tensor.data_ptr(), nbytes(tensor)
    stage.call(lambda nccl, on: nccl.send(at, count, UINT8, seat, *on))


def _receive_from(stage: Stage, tensor: Tensor, seat: int) -> None:
    at, count = tensor.data_ptr(), nbytes(tensor)
    stage.call(lambda nccl, on: nccl.recv(at, count, UINT8, seat, *on))


def _gather(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("gather", stage.size), options_of(args[2:], named)
    root = checks.seat(options.root, "root rank")
    given = checks.one(argument(args, named, 1, "input"), "input tensor")
    lists = argument(args, named, 0, "output")
    _send_to(stage, stage.reads(given), root)
    if root == stage.seat:
        tensors = checks.one_each(checks.nested(lists, "output"), given, "output")
        for seat, tensor in enumerate(tensors):
            _receive_from(stage, stage.writes(tensor), seat)
    elif lists:
        checks.refuse("requires empty output on non-root")
    return stage.launch(lists, options)


def _scatter(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("scatter", stage.size), options_of(args[2:], named)
    root = checks.seat(options.root, "root rank")
    output = checks.one(outputs := argument(args, named, 0, "output"), "output tensor")
    lists = argument(args, named, 1, "input")
    if root == stage.seat:
        tensors = checks.one_each(checks.nested(lists, "input"), output, "input")
        for seat, tensor in enumerate(tensors):
            _send_to(stage, stage.reads(tensor), seat)
    elif lists:
        checks.refuse("requires empty input on non-root")
    _receive_from(stage, stage.writes(output), root)
    return stage.launch(outputs, options)


def _alltoall(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("alltoall", stage.size), options_of(args[2:], named)
    outputs, given = argument(args, named, 0, "output"), argument(args, named, 1, "input")
    for tensors, what in ((outputs, "output"), (given, "input")):
        if len(tensors) != checks.size:
            checks.refuse(f"{what} tensor list must have one tensor for every rank")
        for tensor in tensors:
            checks.dense(tensor)
            if tensor.dtype != outputs[0].dtype:
                checks.refuse(f"{what} tensors must have the same type")
    _exchange(stage, [stage.reads(t) for t in given], [stage.writes(t) for t in outputs])
    return stage.launch(outputs, options)


def _alltoall_single(stage: Stage, args: Args, named: Named) -> Any:
    checks, options = Checks("all_to_all_single", stage.size), options_of(args[4:], named)
    output, given = argument(args, named, 0, "output"), argument(args, named, 1, "input")
    if checks.dense(output).dtype != checks.dense(given).dtype:
        checks.refuse("tensors are not equal in data type")
    counts_out = checks.splits(output, argument(args, named, 2, "output_split") or [], "output")
    counts_in = checks.splits(given, argument(args, named, 3, "input_split") or [], "input")
    source, target = stage.reads(given).reshape(-1), stage.writes(output).view(-1)
    _exchange(stage, torch.split(source, counts_in), torch.split(target, counts_out))
    return stage.launch(output, options)


def _exchange(stage: Stage, given: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Send and receive. What has no elements is no message: both ends know it."""
    for seat, (tensor, output) in enumerate(zip(given, outputs, strict=True)):
        if tensor.numel():
            _send_to(stage, tensor, seat)
        if output.numel():
            _receive_from(stage, output, seat)


def _barrier(stage: Stage, args: Args, named: Named) -> Any:
    """Have the host itself wait for all seats."""
    one = stage.holds(stage.session.scratch())
    at = one.data_ptr()
    stage.call(lambda nccl, on: nccl.all_reduce(at, at, 1, UINT8, MAX, *on))
    stage.holds_host = True
    return stage.launch([], options_of(args, named))


def _send(stage: Stage, args: Args, named: Named) -> Any:
    checks = Checks("send", stage.size)
    tensor = checks.one(argument(args, named, 0, "tensor"), "tensor")
    _send_to(stage, stage.reads(tensor), _peer(checks, stage, argument(args, named, 1, "dst")))
    return stage.launch([], options_of((), {}))


def _recv(stage: Stage, args: Args, named: Named) -> Any:
    checks = Checks("recv", stage.size)
    tensor = checks.one(tensors := argument(args, named, 0, "tensor"), "tensor")
    _receive_from(
        stage, stage.writes(tensor), _peer(checks, stage, argument(args, named, 1, "src"))
    )
    return stage.launch(tensors, options_of((), {}))


def _peer(checks: Checks, stage: Stage, given: Any) -> int:
    seat = checks.seat(int(given), "rank")
    if seat == stage.seat:
        checks.refuse("a rank cannot send to itself")
    return seat


def _not_over_nccl(op: str) -> Callable[[Stage, Args, Named], Any]:
    def refuse(stage: Stage, args: Args, named: Named) -> Any:
        raise RuntimeError(
            f"ProcessGroup nccl does not support {op}: name the rank, or use a tensor of the host"
        )

    return refuse


_ALL: dict[str, Callable[[Stage, Args, Named], Any]] = {
    "allreduce": _allreduce,
    "allreduce_coalesced": _allreduce_coalesced,
    "broadcast": _broadcast,
    "reduce": _reduce,
    ALL_GATHER_BASE: _all_gather_single,
    "all_gather_single": _all_gather_single,
    REDUCE_SCATTER_BASE: _reduce_scatter_single,
    "reduce_scatter_single": _reduce_scatter_single,
    "allgather_into_tensor_coalesced": _gather_singles,
    "all_gather_single_coalesced": _gather_singles,
    "reduce_scatter_tensor_coalesced": _scatter_singles,
    "reduce_scatter_single_coalesced": _scatter_singles,
    "allgather": _allgather,
    "allgather_coalesced": _allgather_coalesced,
    "reduce_scatter": _reduce_scatter,
    "gather": _gather,
    "scatter": _scatter,
    "alltoall": _alltoall,
    "alltoall_base": _alltoall_single,
    "all_to_all_single": _alltoall_single,
    "barrier": _barrier,
    "send": _send,
    "recv": _recv,
    "recv_anysource": _not_over_nccl("recv from any rank"),
    "monitored_barrier": _not_over_nccl("monitored_barrier"),
}

CALLS = {op: _ALL[op] for op in ALL_OPS}
"""What every operation of the installed torch does."""


def lies_in(device_holds: Callable[[Tensor], bool], args: Args, named: Named) -> bool | None:
    """Tell whether the call's first tensor lies on the device; None if it has no tensor."""
    first = next(flat((*args, *named.values())), None)
    return None if first is None else device_holds(first)
