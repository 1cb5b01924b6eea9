# SPDX-License-Identifier: Apache-2.0
"""The handle of a call that the native communicator carries out by itself.

Its end needs no watching: an aborted session ends every ticket within milliseconds. So the handle
only translates how the call ended, and takes care of what must happen once, behind the call: copies
into tensors that were not contiguous, what a tap wants to hear, the end of a profiler's record.
"""

import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from trainmover.comm.calls.arguments import blank, flat
from trainmover.comm.calls.settled import FOREVER
from trainmover.torch_internals.distributed.c10d import Work, answers_as_work

if TYPE_CHECKING:
    from trainmover.comm.native.session import NativeSession

FOREVER_S = 1e8
Step = Callable[[], None]


class Behind:
    """What follows a call, done once by whoever comes first; the others wait for him.

    steps  run in this order if the call came through, not at all if it did not
    always  run in any case, last
    """

    def __init__(self, steps: list[Step], always: Step | None = None) -> None:
        self._steps = steps
        self._always = always
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    def add(self, step: Step) -> None:
        self._steps.append(step)

    def settle(self, error: BaseException | None, *, drained: bool) -> BaseException | None:
        """How the call ended in the end: a step may fail too."""
        with self._lock:
            steps, self._steps = self._steps, []
            always, self._always = self._always, None
            self._error = self._error or error
            try:
                if error is None and not drained:
                    for step in steps:
                        step()
            except Exception as failed:  # noqa: BLE001  In any thread: the waiter gets it.
                self._error = failed
            if always is not None:
                always()
            return self._error


@answers_as_work
class NativeWork(Work):
    """A call that may still run.

    outputs  the caller's own tensors, perhaps in nested lists
    keep     whatever else must stay alive until the call is over
    reads    the call writes nothing at this seat, also not to `outputs`
    """

    _over = False
    _drained = False
    _error: BaseException | None = None
    _future: "torch.futures.Future[Any] | None" = None

    def __init__(
        self,
        session: "NativeSession",
        ticket: Any,
        outputs: Any,
        keep: Any,
        behind: Behind | None = None,
        *,
        reads: bool = False,
    ) -> None:
        super().__init__()
        self._session = session
        self._ticket = ticket
        self._outputs = outputs
        self._keep = keep
        self._behind = behind
        self._reads = reads
        if behind is not None:  # It has to happen, whether or not anybody waits.
            session.completer.when_done(ticket, self._end)

    def wait(self, timeout: timedelta = FOREVER) -> bool:
        """Raises what the call raised, except a lost peer that the runtime handles."""
        if not self._over and not self._end(timeout.total_seconds() if timeout else FOREVER_S):
            raise RuntimeError("Operation timed out!")
        if self._error is not None:
            raise self._error
        if self._drained:
            self._session.gave_up()
        return True

    def ends_within(self, timeout_s: float) -> bool:
        """Wait so long; False if it still runs then. Raises nothing."""
        return self._over or self._end(timeout_s)

    def _end(self, timeout_s: float = FOREVER_S) -> bool:
        """Wait for the ticket and settle; False when it still runs after `timeout_s`."""
        error: BaseException | None = None
        try:
            if not self._ticket.wait(timeout_s):
                return False
        except Exception as raised:  # noqa: BLE001  It may be the completer's thread.
            error = self._session.judge(raised)
            self._drained = error is None
            if self._drained and not self._reads:
                blank(flat(self._outputs))
        if self._behind is not None:
            error = self._behind.settle(error, drained=self._drained)
        self._error = error
        self._over = True
        return True

    def __del__(self) -> None:
        """A handle may be dropped while its call runs: the tensors must stay."""
        if self._over or self._behind is not None or sys.is_finalizing() or self._ticket.done():
            return
        tensors = self._outputs, self._keep
        self._session.completer.when_done(self._ticket, lambda: tensors)

    def get_future(self) -> "torch.futures.Future[Any]":
        """Ends with the call, in a thread of ours. An error is one for waiters in C++ as well."""
        with self._session.promising:
            if self._future is not None:
                return self._future
            start: torch.futures.Future[Any] = torch.futures.Future()
            self._future = start.then(self._value)
        if self._over or self._ticket.done():
            start.set_result(None)
        else:
            self._session.completer.when_done(self._ticket, lambda: start.set_result(None))
        return self._future

    def _value(self, start: object) -> list[torch.Tensor]:
        if not self._over:
            self._end()
        if self._error is not None:
            raise self._error
        return list(flat(self._outputs))

    def is_completed(self) -> bool:
        return self._over or (bool(self._ticket.done()) and self._end())

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Any:
        return self._error if self.is_completed() else None

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        return list(flat(self._outputs))

    def source_rank(self) -> int:
        """Seat that a tensor came from; 0 when none came."""
        return 0 if self._drained else int(self._ticket.source)
