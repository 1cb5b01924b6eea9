# SPDX-License-Identifier: Apache-2.0
"""Operations on lists of tensors, and those that torch has bundled into one call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainmover.comm.calls.arguments import argument
from trainmover.comm.native.checks import Checks
from trainmover.comm.native.options import options_of
from trainmover.comm.native.singles import gather_into, scatter_from
from trainmover.comm.native.staging import Staging, unpack
from trainmover.comm.native.types import moved_code, operator_code, reduced_code

Args = Sequence[Any]
Named = Mapping[str, Any]


def _allgather(stage: Staging, args: Args, named: Named) -> Any:
    checks, options = Checks("allgather", stage.session.size), options_of(args[2:], named)
    given = checks.one(argument(args, named, 1, "input"), "input tensor")
    lists = argument(args, named, 0, "output")
    tensors = checks.one_each(checks.nested(lists, "output"), given, "output")
    at, count, code = stage.reads(given), given.numel(), moved_code(given.dtype)
    outputs = [stage.writes(tensor) for tensor in tensors]
    return stage.launch(
        lambda background: stage.group.all_gather(
            at, outputs, count, code, background, stage.epoch
        ),
        lists,
        options,
    )


def _gather(stage: Staging, args: Args, named: Named) -> Any:
    checks, options = Checks("gather", stage.session.size), options_of(args[2:], named)
    root = checks.seat(options.root, "root rank")
    given = checks.one(argument(args, named, 1, "input"), "input tensor")
    lists = argument(args, named, 0, "output")
    tensors: Sequence[Tensor] = []
    if root == stage.session.seat:
        tensors = checks.one_each(checks.nested(lists, "output"), given, "output")
    elif lists:
        checks.refuse("requires empty output on non-root")
    at, count, code = stage.reads(given), given.numel(), moved_code(given.dtype)
    outputs = [stage.writes(tensor) for tensor in tensors]
    return stage.launch(
        lambda background: stage.group.gather(
            at, outputs, count, code, root, background, stage.epoch
        ),
        lists,
        options,
    )


def _scatter(stage: Staging, args: Args, named: Named) -> Any:
    checks, options = Checks("scatter", stage.session.size), options_of(args[2:], named)
    root = checks.seat(options.root, "root rank")
    output = checks.one(outputs := argument(args, named, 0, "output"), "output tensor")
    lists = argument(args, named, 1, "input")
    tensors: Sequence[Tensor] = []
    if root == stage.session.seat:
        tensors = checks.one_each(checks.nested(lists, "input"), output, "input")
    elif lists:
        checks.refuse("requires empty input on non-root")
    inputs = [stage.reads(tensor) for tensor in tensors]
    at, count, code = stage.writes(output), output.numel(), moved_code(output.dtype)
    return stage.launch(
        lambda background: stage.group.scatter(
            inputs, at, count, code, root, background, stage.epoch
        ),
        outputs,
        options,
    )


def _reduce_scatter(stage: Staging, args: Args, named: Named) -> Any:
    checks, options = Checks("reduce_scatter", stage.session.size), options_of(args[2:], named)
    output = checks.one(outputs := argument(args, named, 0, "output"), "output tensor")
    lists = checks.nested(argument(args, named, 1, "input"), "input")
    inputs = [stage.reads(tensor) for tensor in checks.one_each(lists, output, "input")]
    at, count, code = stage.writes(output), output.numel(), reduced_code(output.dtype)
    operator = operator_code(options.reduction)
    return stage.launch(
        lambda background: stage.group.reduce_scatter(
            inputs, at, count, code, operator, background, stage.epoch
        ),
        outputs,
        options,
    )


def _alltoall(stage: Staging, args: Args, named: Named) -> Any:
    checks, options = Checks("alltoall", stage.session.size), options_of(args[2:], named)
    outputs, given = argument(args, named, 0, "output"), argument(args, named, 1, "input")
    for tensors, what in ((outputs, "output"), (given, "input")):
        if len(tensors) != checks.size:
            checks.refuse(f"{what} tensor list must have one tensor for every rank")
        for tensor in tensors:
            checks.dense(tensor)
            if tensor.dtype != outputs[0].dtype:
                checks.refuse(f"{what} tensors must have the same type")
    code = moved_code(outputs[0].dtype)
    inputs, counts_in = [stage.reads(t) for t in given], [t.numel() for t in given]
    targets, counts_out = [stage.writes(t) for t in outputs], [t.numel() for t in outputs]
    return stage.launch(
        lambda background: stage.group.all_to_all(
            inputs, counts_in, targets, counts_out, code, background, stage.epoch
        ),
        outputs,
        options,
    )


def _alltoall_single(stage: Staging, args: Args, named: Named) -> Any:
    checks, options = Checks("all_to_all_single", stage.session.size), options_of(args[4:], named)
    output, given = argument(args, named, 0, "output"), argument(args, named, 1, "input")
    if checks.dense(output).dtype != checks.dense(given).dtype:
        checks.refuse("tensors are not equal in data type")
    counts_out = checks.splits(output, argument(args, named, 2, "output_split") or [], "output")
    counts_in = checks.splits(given, argument(args, named, 3, "input_split") or [], "input")
    code, width = moved_code(output.dtype), output.element_size()
    inputs = _starts(stage.reads(given), counts_in, width)
    targets = _starts(stage.writes(output), counts_out, width)
    return stage.launch(
        lambda background: stage.group.all_to_all(
            inputs, counts_in, targets, counts_out, code, background, stage.epoch
        ),
        output,
        options,
    )


def _starts(first: int, counts: list[int], width: int) -> list[int]:
    """Where each seat's part begins."""
    starts = [first]
    for count in counts[:-1]:
        starts.append(starts[-1] + count * width)
    return starts


def _allreduce_coalesced(stage: Staging, args: Args, named: Named) -> Any:
    checks, options = Checks("allreduce_coalesced", stage.session.size), options_of(args[1:], named)
    tensors = argument(args, named, 0, "tensor")
    if not tensors:
        checks.refuse("requires non-empty tensor list")
    for index, tensor in enumerate(tensors):
        if checks.dense(tensor).dtype != tensors[0].dtype:
            checks.refuse(f"tensor type at index {index}: tensors must all have the same type")
    code, operator = reduced_code(tensors[0].dtype), operator_code(options.reduction)
    pack = stage.packed(tensors)
    count = pack.numel() // tensors[0].element_size()
    stage.then(lambda: unpack(pack, tensors))
    return stage.launch(
        lambda background: stage.group.all_reduce(
            pack.data_ptr(), count, code, operator, background, stage.epoch
        ),
        tensors,
        options,
    )


def _allgather_coalesced(stage: Staging, args: Args, named: Named) -> Any:
    checks, options = Checks("allgather_coalesced", stage.session.size), options_of(args[2:], named)
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
    pack = stage.packed(given)
    gathered = [torch.empty_like(pack) for _ in lists]
    stage.then(lambda: _unpack_each(gathered, lists))
    code, targets = moved_code(torch.uint8), [stage.writes(part) for part in gathered]
    return stage.launch(
        lambda background: stage.group.all_gather(
            pack.data_ptr(), targets, pack.numel(), code, background, stage.epoch
        ),
        lists,
        options,
    )


def _unpack_each(packs: Sequence[Tensor], lists: Sequence[Sequence[Tensor]]) -> None:
    for pack, tensors in zip(packs, lists, strict=True):
        unpack(pack, tensors)


def _gather_singles(stage: Staging, args: Args, named: Named) -> Any:
    """Several calls of all_gather_single in one: the last one's end is the end of all."""
    checks = Checks("all_gather_single_coalesced", stage.session.size)
    outputs, given = argument(args, named, 0, "output"), argument(args, named, 1, "input")
    pairs = _pairs(checks, outputs, given)
    for output, tensor in pairs:
        checks.whole(output, tensor, "output")
    starts = [gather_into(stage, output, tensor) for output, tensor in pairs]
    return stage.launch(_in_turn(starts), outputs, options_of(args[2:], named))


def _scatter_singles(stage: Staging, args: Args, named: Named) -> Any:
    """Several calls of reduce_scatter_single in one."""
    checks = Checks("reduce_scatter_single_coalesced", stage.session.size)
    options = options_of(args[2:], named)
    outputs, given = argument(args, named, 0, "output"), argument(args, named, 1, "input")
    pairs = _pairs(checks, outputs, given)
    for output, tensor in pairs:
        checks.whole(tensor, output, "input")
    starts = [scatter_from(stage, output, tensor, options.reduction) for output, tensor in pairs]
    return stage.launch(_in_turn(starts), outputs, options)


def _pairs(
    checks: Checks, outputs: Sequence[Tensor], inputs: Sequence[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    if not outputs or len(outputs) != len(inputs):
        checks.refuse("requires as many output tensors as input tensors, and at least one")
    return [
        (checks.dense(out), checks.dense(given)) for out, given in zip(outputs, inputs, strict=True)
    ]


def _in_turn(starts: Sequence[Callable[[bool], Any]]) -> Callable[[bool], Any]:
    def start(background: bool) -> Any:
        return [start(background) for start in starts][-1]

    return start


LIST_CALLS: dict[str, Callable[[Staging, Args, Named], Any]] = {
    "allgather": _allgather,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "alltoall": _alltoall,
    "alltoall_base": _alltoall_single,
    "all_to_all_single": _alltoall_single,
    "allreduce_coalesced": _allreduce_coalesced,
    "allgather_coalesced": _allgather_coalesced,
    "allgather_into_tensor_coalesced": _gather_singles,
    "all_gather_single_coalesced": _gather_singles,
    "reduce_scatter_tensor_coalesced": _scatter_singles,
    "reduce_scatter_single_coalesced": _scatter_singles,
}
