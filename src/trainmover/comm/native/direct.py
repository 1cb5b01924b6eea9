# SPDX-License-Identifier: Apache-2.0
"""The short way of the calls that training makes all the time.

One tensor, in one piece, of a type with arithmetic, options as torch's own functions give them:
then nothing has to be prepared and nothing follows behind, so the call goes straight into the
extension. Everything else takes the long way (`native/calls`). Every line here is paid for at every
call.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainmover.comm.calls.settled import Request, SettledWork
from trainmover.comm.native.calls import CALLS
from trainmover.comm.native.types import OPERATORS, UNSET, plain_code
from trainmover.comm.native.work import NativeWork
from trainmover.torch_internals.distributed.c10d import (
    ALL_GATHER_BASE,
    REDUCE_SCATTER_BASE,
    AllgatherOptions,
    AllreduceOptions,
    BarrierOptions,
    BroadcastOptions,
    ReduceScatterOptions,
)

if TYPE_CHECKING:
    from trainmover.comm.native.session import NativeSession


def direct_calls(session: "NativeSession") -> Mapping[str, Callable[..., Any]]:
    """One function for every operation, taking what the ProcessGroup method takes."""
    short = {
        "allreduce": _allreduce,
        "broadcast": _broadcast,
        ALL_GATHER_BASE: _all_gather_single,
        "all_gather_single": _all_gather_single,
        REDUCE_SCATTER_BASE: _reduce_scatter_single,
        "reduce_scatter_single": _reduce_scatter_single,
        "barrier": _barrier,
        "send": _send,
        "recv": _recv,
    }
    table: dict[str, Callable[..., Any]] = {op: _long_way(session, op) for op in CALLS}
    for op, make in short.items():
        if op in table:
            table[op] = make(session, table[op])
    return table


def _long_way(session: "NativeSession", op: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return session.start(Request(op, args, kwargs), None)

    return call


def _allreduce(session: "NativeSession", otherwise: Callable[..., Any]) -> Callable[..., Any]:
    native, epoch = session.group.all_reduce, session.epoch
    options_type = AllreduceOptions

    def allreduce(*args: Any, **named: Any) -> Any:
        if len(args) == 2 and not named and type(args[1]) is options_type and len(args[0]) == 1:
            tensors, opts = args
            tensor = tensors[0]
            code = plain_code(tensor)
            operator = OPERATORS[int(opts.reduceOp.op)]
            if code is not None and operator is not None:
                at, count = tensor.data_ptr(), tensor.numel()
                if opts.asyncOp:
                    ticket = native(at, count, code, operator, True, epoch)
                    return NativeWork(session, ticket, tensors, None)
                native(at, count, code, operator, False, epoch)
                return SettledWork(tensors)
        return otherwise(*args, **named)

    return allreduce


def _broadcast(session: "NativeSession", otherwise: Callable[..., Any]) -> Callable[..., Any]:
    native, epoch = session.group.broadcast, session.epoch
    options_type = BroadcastOptions
    size, seat = session.size, session.seat

    def broadcast(*args: Any, **named: Any) -> Any:
        if len(args) == 2 and not named and type(args[1]) is options_type and len(args[0]) == 1:
            tensors, opts = args
            tensor = tensors[0]
            code = plain_code(tensor)
            root = opts.rootRank
            if code is not None and 0 <= root < size and opts.rootTensor == 0:
                at, count = tensor.data_ptr(), tensor.numel()
                if opts.asyncOp:
                    ticket = native(at, count, code, root, True, epoch)
                    return NativeWork(session, ticket, tensors, None, reads=root == seat)
                native(at, count, code, root, False, epoch)
                return SettledWork(tensors)
        return otherwise(*args, **named)

    return broadcast


def _all_gather_single(
    session: "NativeSession", otherwise: Callable[..., Any]
) -> Callable[..., Any]:
    native, epoch = session.group.all_gather, session.epoch
    options_type = AllgatherOptions
    size = session.size

    def all_gather_single(*args: Any, **named: Any) -> Any:
        if len(args) == 3 and not named and type(args[2]) is options_type:
            output, given, opts = args
            code, count = plain_code(given), given.numel()
            if code is not None and plain_code(output) == code and output.numel() == count * size:
                step, at = count * given.element_size(), output.data_ptr()
                outputs = [at + seat * step for seat in range(size)]
                if opts.asyncOp:
                    ticket = native(given.data_ptr(), outputs, count, code, True, epoch)
                    return NativeWork(session, ticket, output, given)
                native(given.data_ptr(), outputs, count, code, False, epoch)
                return SettledWork([output])
        return otherwise(*args, **named)

    return all_gather_single


def _reduce_scatter_single(
    session: "NativeSession", otherwise: Callable[..., Any]
) -> Callable[..., Any]:
    native, epoch = session.group.reduce_scatter, session.epoch
    options_type = ReduceScatterOptions
    size = session.size

    def reduce_scatter_single(*args: Any, **named: Any) -> Any:
        if len(args) == 3 and not named and type(args[2]) is options_type:
            output, given, opts = args
            code, count = plain_code(output), output.numel()
            operator = OPERATORS[int(opts.reduceOp.op)]
            fits = plain_code(given) == code and given.numel() == count * size
            if code is not None and operator is not None and fits:
                step, at = count * output.element_size(), given.data_ptr()
                inputs = [at + seat * step for seat in range(size)]
                if opts.asyncOp:
                    ticket = native(inputs, output.data_ptr(), count, code, operator, True, epoch)
                    return NativeWork(session, ticket, output, given)
                native(inputs, output.data_ptr(), count, code, operator, False, epoch)
                return SettledWork([output])
        return otherwise(*args, **named)

    return reduce_scatter_single


def _barrier(session: "NativeSession", otherwise: Callable[..., Any]) -> Callable[..., Any]:
    native, epoch = session.group.barrier, session.epoch
    options_type = BarrierOptions

    def barrier(*args: Any, **named: Any) -> Any:
        opts = args[0] if args else named.get("opts")
        if type(opts) is options_type and opts.timeout == UNSET:
            if opts.asyncOp:
                return NativeWork(session, native(True, epoch), [], None)
            native(False, epoch)
            return SettledWork([])
        return otherwise(*args, **named)

    return barrier


def _send(session: "NativeSession", otherwise: Callable[..., Any]) -> Callable[..., Any]:
    native, epoch = session.group.send, session.epoch
    seats = range(session.size)

    def send(*args: Any, **named: Any) -> Any:
        if len(args) == 3 and len(args[0]) == 1:
            tensors, to, tag = args
            tensor = tensors[0]
            code = plain_code(tensor)
            if code is not None and to in seats and to != session.seat:
                ticket = native(tensor.data_ptr(), tensor.numel(), code, to, tag, epoch)
                return NativeWork(session, ticket, [], tensors)
        return otherwise(*args, **named)

    return send


def _recv(session: "NativeSession", otherwise: Callable[..., Any]) -> Callable[..., Any]:
    native, epoch = session.group.recv, session.epoch
    seats = range(session.size)

    def recv(*args: Any, **named: Any) -> Any:
        if len(args) == 3 and len(args[0]) == 1:
            tensors, source, tag = args
            tensor = tensors[0]
            code = plain_code(tensor)
            if code is not None and source in seats and source != session.seat:
                ticket = native(tensor.data_ptr(), tensor.numel(), code, source, tag, epoch)
                return NativeWork(session, ticket, tensors, None)
        return otherwise(*args, **named)

    return recv
