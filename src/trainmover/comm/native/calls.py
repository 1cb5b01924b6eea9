# SPDX-License-Identifier: Apache-2.0
"""Every operation in full: what torch's arguments mean, in calls of the extension.

One function per operation, taking the `Staging` of the call and the arguments of the ProcessGroup
method. The calls of one tensor are here, those of lists in `native/lists`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from trainmover.comm.calls.arguments import ALL_OPS, argument
from trainmover.comm.native.barrier import monitored_barrier
from trainmover.comm.native.checks import Checks
from trainmover.comm.native.lists import LIST_CALLS
from trainmover.comm.native.options import options_of
from trainmover.comm.native.singles import gather_into, scatter_from
from trainmover.comm.native.sparse import all_reduce_sparse
from trainmover.comm.native.staging import Staging
from trainmover.comm.native.types import moved_code, operator_code, reduced_code
from trainmover.torch_internals.distributed.c10d import ALL_GATHER_BASE, REDUCE_SCATTER_BASE

Args = Sequence[Any]
Named = Mapping[str, Any]


def _allreduce(stage: Staging, args: Args, named: Named) -> Any:
    checks, options = Checks("allreduce", stage.session.size), options_of(args[1:], named)
    tensors = argument(args, named, 0, "tensor")
    first = tensors if isinstance(tensors, Tensor) else next(iter(tensors), None)
    if first is not None and first.is_sparse:
        return all_reduce_sparse(stage, checks, first, options)
    tensor = checks.one(tensors, "tensor")
    code, operator = reduced_code(tensor.dtype), operator_code(options.reduction)
    at, count = stage.updates(tensor), tensor.numel()
    return stage.launch(
        lambda background: stage.group.all_reduce(
            at, count, code, operator, background, stage.epoch
        ),
        tensors,
        options,
    )


def _broadcast(stage: Staging, args: Args, named: Named) -> Any:
    checks, options = Checks("broadcast", stage.session.size), options_of(args[1:], named)
    tensor = checks.one(tensors := argument(args, named, 0, "tensor"), "tensor")
    root, code = checks.seat(options.root, "root rank"), moved_code(tensor.dtype)
    stage.only_reads = sends = root == stage.session.seat
    at, count = (stage.reads if sends else stage.writes)(tensor), tensor.numel()
    return stage.launch(
        lambda background: stage.group.broadcast(at, count, code, root, background, stage.epoch),
        tensors,
        options,
    )


def _reduce(stage: Staging, args: Args, named: Named) -> Any:
    checks, options = Checks("reduce", stage.session.size), options_of(args[1:], named)
    tensor = checks.one(tensors := argument(args, named, 0, "tensor"), "tensor")
    root, code = checks.seat(options.root, "root rank"), reduced_code(tensor.dtype)
    operator, count = operator_code(options.reduction), tensor.numel()
    stage.only_reads = root != stage.session.seat
    at = (stage.reads if stage.only_reads else stage.updates)(tensor)
    return stage.launch(
        lambda background: stage.group.reduce(
            at, count, code, operator, root, background, stage.epoch
        ),
        tensors,
        options,
    )


def _all_gather_single(stage: Staging, args: Args, named: Named) -> Any:
    checks, options = Checks("all_gather_single", stage.session.size), options_of(args[2:], named)
    output, given = argument(args, named, 0, "output"), argument(args, named, 1, "input")
    checks.whole(checks.dense(output), checks.dense(given), "output")
    return stage.launch(gather_into(stage, output, given), output, options)


def _reduce_scatter_single(stage: Staging, args: Args, named: Named) -> Any:
    checks = Checks("reduce_scatter_single", stage.session.size)
    options = options_of(args[2:], named)
    output, given = argument(args, named, 0, "output"), argument(args, named, 1, "input")
    checks.whole(checks.dense(given), checks.dense(output), "input")
    return stage.launch(scatter_from(stage, output, given, options.reduction), output, options)


def _barrier(stage: Staging, args: Args, named: Named) -> Any:
    return stage.launch(
        lambda background: stage.group.barrier(background, stage.epoch), [], options_of(args, named)
    )


def _monitored_barrier(stage: Staging, args: Args, named: Named) -> None:
    timeout = argument(args, named, 0, "timeout")
    wait_all = bool(argument(args, named, 1, "wait_all_ranks"))
    monitored_barrier(stage.session, timeout, wait_all=wait_all)
    stage.finish([])


def _send(stage: Staging, args: Args, named: Named) -> Any:
    checks = Checks("send", stage.session.size)
    tensor = checks.one(argument(args, named, 0, "tensor"), "tensor")
    to = _peer(checks, stage, argument(args, named, 1, "dst"))
    tag, code = int(argument(args, named, 2, "tag") or 0), moved_code(tensor.dtype)
    at, count = stage.reads(tensor), tensor.numel()
    return stage.launch(
        lambda _: stage.group.send(at, count, code, to, tag, stage.epoch), [], options_of((), {})
    )


def _recv(stage: Staging, args: Args, named: Named) -> Any:
    source = _peer(Checks("recv", stage.session.size), stage, argument(args, named, 1, "src"))
    return _receive(
        stage, argument(args, named, 0, "tensor"), source, argument(args, named, 2, "tag")
    )


def _recv_anysource(stage: Staging, args: Args, named: Named) -> Any:
    return _receive(stage, argument(args, named, 0, "arg0"), -1, argument(args, named, 1, "arg1"))


def _receive(stage: Staging, tensors: Any, source: int, tag: Any) -> Any:
    tensor = Checks("recv", stage.session.size).one(tensors, "tensor")
    at, count, code = stage.writes(tensor), tensor.numel(), moved_code(tensor.dtype)
    number = int(tag or 0)
    return stage.launch(
        lambda _: stage.group.recv(at, count, code, source, number, stage.epoch),
        tensors,
        options_of((), {}),
    )


def _peer(checks: Checks, stage: Staging, given: Any) -> int:
    seat = checks.seat(int(given), "rank")
    if seat == stage.session.seat:
        checks.refuse("a rank cannot send to itself")
    return seat


_ALL: dict[str, Callable[[Staging, Args, Named], Any]] = {
    "allreduce": _allreduce,
    "broadcast": _broadcast,
    "reduce": _reduce,
    ALL_GATHER_BASE: _all_gather_single,
    "all_gather_single": _all_gather_single,
    REDUCE_SCATTER_BASE: _reduce_scatter_single,
    "reduce_scatter_single": _reduce_scatter_single,
    "barrier": _barrier,
    "monitored_barrier": _monitored_barrier,
    "send": _send,
    "recv": _recv,
    "recv_anysource": _recv_anysource,
    **LIST_CALLS,
}

CALLS = {op: _ALL[op] for op in ALL_OPS}
"""What every operation of the installed torch does."""
