# SPDX-License-Identifier: Apache-2.0
"""The native communicator within one epoch."""

import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainmover import _native
from trainmover.comm.calls.arguments import inputs_of
from trainmover.comm.calls.settled import Request
from trainmover.comm.failures import CallsDiffer, ConnectionEnded
from trainmover.comm.native.calls import CALLS
from trainmover.comm.native.direct import direct_calls
from trainmover.comm.native.staging import Staging
from trainmover.comm.native.work import NativeWork, Step
from trainmover.torch_internals.autograd import profiling

if TYPE_CHECKING:
    from trainmover.comm.communicator import View
    from trainmover.comm.native.completer import Completer


_INTEGERS, _LARGEST = _native.DTYPES["i64"], _native.OPS["max"]


class NativeSession:
    """Calls of one epoch. They end with it by themselves, within milliseconds, and each names its
    epoch: one that was held up over a switchover is refused by the next.

    promising  guards the making of futures
    """

    immediate = False
    prompt = True
    cut = False

    def __init__(
        self,
        view: "View",
        group: _native.Group,
        completer: "Completer",
        abort: Callable[["NativeSession", str], None],
    ) -> None:
        self.epoch = view.epoch
        self.name = view.group
        self.seat = view.seat
        self.size = view.size
        self.timeout = view.timeout
        self.group = group
        self.completer = completer
        self.promising = threading.Lock()
        self.barriers = 0
        self._abort = abort
        self._absorb: Callable[[BaseException], bool] | None = None
        self._gave_up: Callable[[], None] | None = None
        self.direct: Mapping[str, Callable[..., Any]] = direct_calls(self)

    @property
    def unfinished(self) -> bool:
        return self.completer.busy

    def attach(self, absorb: Callable[[BaseException], bool], gave_up: Callable[[], None]) -> None:
        """Whom to ask whether the caller must see an error, and to tell that he has no result."""
        self._absorb, self._gave_up = absorb, gave_up

    def gave_up(self) -> None:
        """Whoever waits for a call is about to go on without its result. May raise anything."""
        if self._gave_up is not None:
            self._gave_up()

    def issue(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self.start(Request(op, args, kwargs), None)

    def start(self, request: Request, told: Step | None) -> Any:
        """Make any call in full, also one that a tap or a profiler listens to."""
        stage = Staging(self, told)
        if profiling():
            stage.record(request.op, _shown(request))
        try:
            return CALLS[request.op](stage, request.args, request.kwargs)
        finally:
            stage.give_up()

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Of each the largest that any seat gives. No tensor is made for them."""
        found = array("q", numbers)
        at, count = found.buffer_info()
        self.group.all_reduce(at, count, _INTEGERS, _LARGEST, False, self.epoch)
        return found.tolist()

    def peers(self) -> list[int]:
        return self.group.peers()

    def translate(self, error: Exception) -> Exception:
        """An error of the extension in the words and types that scripts know from gloo."""
        if not isinstance(error, (_native.NativeError, ValueError)):
            return error
        known: Exception
        if isinstance(error, _native.OrderMismatch):
            known = CallsDiffer(f"Mismatch between the calls of ranks: {error}")
        elif isinstance(error, _native.TimedOut):
            known = ConnectionEnded(f"Group {self.name}: Timed out waiting for a rank: {error}")
        elif isinstance(error, _native.Failed):
            known = RuntimeError(f"Group {self.name}: {error}")
        elif isinstance(error, _native.NativeError):
            known = ConnectionEnded(f"Group {self.name}: Connection closed by peer: {error}")
        else:
            known = RuntimeError(f"invalid call of group {self.name}: {error}")
        return known

    def judge(self, error: Exception) -> Exception | None:
        """What the caller gets to see of it: nothing when a lost peer is the runtime's affair."""
        known = self.translate(error)
        if self._absorb is not None and self._absorb(known):
            return None
        if known is not error:
            known.__cause__ = error
        return known

    def wait_for(self, work: NativeWork, timeout: timedelta | None) -> None:
        """As `work.wait()`; a call that takes longer than `timeout` ends the session, as gloo's."""
        if timeout is None or work.ends_within(timeout.total_seconds()):
            work.wait()
            return
        waited_ms = round(timeout.total_seconds() * 1000)
        why = f"Group {self.name}: Timed out waiting {waited_ms}ms for the other ranks"
        self.abort(why)
        raise ConnectionEnded(why)

    def abort(self, why: str) -> None:
        self._abort(self, why)

    def backend(self, device: Any) -> Any:
        return None

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeout = timeout
        self.group.set_timeout(timeout.total_seconds())

    def sequence_number(self) -> int:
        return int(self.group.sequence)

    def sliced(self, op: str, work: Any) -> bool:
        return True


def _shown(request: Request) -> list[Tensor]:
    """The tensors whose shapes a profile shows, as with gloo."""
    return inputs_of(request.op, request.args, request.kwargs) or request.outputs()
