# SPDX-License-Identifier: Apache-2.0
"""The handles that frameworks wait on are ours, so that they can end when the epoch ends.

gloo's own work ends when its peers do their part or its timeout passes, and a cut socket wakes most
of it but not all. So every call returns a `WatchedWork` that ends when gloo's work ends *or* at the
moment its session is drained, whichever comes first. What gloo leaves behind keeps its own
references to the tensors and is collected with its session.

A plain `wait()` first waits in gloo itself for a moment: most calls end there without a switch of
threads. Only a longer wait, or one that asked for a future, is registered with the `Watch`.
"""

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from trainmover.comm.calls.settled import FOREVER, Request
from trainmover.comm.calls.tap import Call
from trainmover.comm.calls.threads import waiters
from trainmover.comm.communicator import Session
from trainmover.torch_internals.distributed.c10d import Work, answers_as_work, duration_of, kind_of

if TYPE_CHECKING:
    from trainmover.comm.calls.watch import Watch

_SLICE = timedelta(milliseconds=4)


class BlockingCall:
    """A method that blocks, in the shape of Work for a waiter thread."""

    def __init__(self, session: Session, request: Request) -> None:
        self._session = session
        self._request = request

    def wait(self) -> None:
        self._session.issue(self._request.op, self._request.args, self._request.kwargs)

    def is_completed(self) -> bool:
        return False


@answers_as_work
class WatchedWork(Work):
    """A handle of a running call that also ends with its session."""

    def __init__(self, watch: "Watch", inner: Any, request: Request) -> None:
        super().__init__()
        self._watch = watch
        self._inner = inner
        self._request = request
        self._settled = False
        self._drained = False
        self._delegated = False
        self._inner_over = False
        self._error: BaseException | None = None
        self._over: threading.Lock | None = None  # Held until the end; passed on by each waiter.
        self._future: torch.futures.Future[Any] | None = None
        self._arming = threading.Lock()
        if request.call is not None:
            self._arm(FOREVER)

    def wait(self, timeout: timedelta = FOREVER) -> bool:
        """Raises what the call raised, except a lost peer that the runtime handles."""
        if not self._settled and not self._wait_inside(timeout):
            self._wait_outside(timeout)
        if self._error is not None:
            raise self._error
        if self._drained:
            self._watch.gave_up()
        return True

    def _wait_inside(self, timeout: timedelta) -> bool:
        """Wait in the communicator's own work for a moment; False when it needs longer."""
        if self._over is not None or not self._sliced():
            return False
        try:
            self._inner.wait(min(timeout, _SLICE) if timeout else _SLICE)
        except RuntimeError:
            if not self._inner.is_completed():
                return False
            self._settle(self._verdict())  # The slice may have ended just before the work did.
        else:
            self._settle(None)
        return True

    def _sliced(self) -> bool:
        """See `Session.sliced`."""
        return not isinstance(self._inner, BlockingCall) and self._watch.session.sliced(
            self._request.op, self._inner
        )

    def _verdict(self) -> BaseException | None:
        """How finished work ended."""
        try:
            self._inner.wait()
        except RuntimeError as error:
            self._drained = self._watch.owner.absorb(self._watch, error)
            return None if self._drained else error
        return None

    def _wait_outside(self, timeout: timedelta) -> None:
        over = self._arm(timeout)
        if over.acquire(timeout=timeout.total_seconds() if timeout else -1):
            over.release()
        elif not self._settled:
            raise RuntimeError("Operation timed out!")

    def _arm(self, timeout: timedelta) -> threading.Lock:
        """Register with the watch and have somebody else wait for the communicator's work."""
        with self._arming:
            if self._over is not None:
                return self._over
            over = threading.Lock()
            if self._settled:
                return over
            over.acquire()
            self._over = over
        if not self._watch.enter(self):
            self.end_with_session()
        elif self._sliced():
            self._inner.get_future().add_done_callback(self._inner_ended)
        else:
            self._delegated = True
            waiters.run(lambda: self._wait_for_inner(timeout))
        return over

    def _wait_for_inner(self, timeout: timedelta) -> None:
        try:
            self._inner.wait(timeout) if timeout else self._inner.wait()
        except Exception as error:  # noqa: BLE001  a thread's outermost loop: the waiter gets it
            self._conclude(error)
        else:
            self._conclude(None)

    def _inner_ended(self, future: "torch.futures.Future[Any]") -> None:
        try:
            future.wait()
        except Exception as error:  # noqa: BLE001  a thread's outermost loop: the waiter gets it
            self._conclude(error)
        else:
            self._conclude(None)

    def _conclude(self, error: BaseException | None) -> None:
        """The communicator's work ended, in any thread."""
        self._inner_over = True
        if not self._watch.leave(self):
            return
        if error is not None and self._watch.owner.absorb(self._watch, error):
            self._drained, error = True, None
        elif error is None and self._request.call is not None:
            error = self._tell_tap(self._request.call)
        self._settle(error)

    def _tell_tap(self, call: Call) -> BaseException | None:
        """A tap that fails must be heard by whoever waits, and we are in a thread of gloo's."""
        try:
            self._watch.owner.finished(call)
        except Exception as error:  # noqa: BLE001  in a thread of gloo's: the waiter gets it
            return error
        return None

    def end_with_session(self) -> None:
        """Complete with whatever the buffers hold; the communicator's work is left behind."""
        self._drained = True
        self._watch.stranded.append(self)
        self._settle(None)

    def still_runs(self) -> bool:
        """True when the communicator's work, left behind, has not ended as far as we can see."""
        if self._delegated:
            return not self._inner_over
        return self._sliced() and not self._inner.is_completed()

    def _settle(self, error: BaseException | None) -> None:
        if self._drained and not self._settled:
            self._request.given_up(self._watch.seat)
            if not self._watch.private:
                self._watch.owner.cut_short()
        with self._arming:
            if self._settled:
                return
            self._error = error
            self._settled = True
            future = self._future
            if self._over is not None:
                self._over.release()
        if future is not None:
            self._fulfil(future)

    def _fulfil(self, future: "torch.futures.Future[Any]") -> None:
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._value())

    def _value(self) -> Any:
        """What the communicator's future holds; the outputs when there is none or it is left."""
        if self._drained or not self._sliced():
            return self._request.outputs()
        return self._inner.get_future().value()

    def get_future(self) -> "torch.futures.Future[Any]":
        with self._arming:
            if self._future is not None:
                return self._future
            future: torch.futures.Future[Any] = torch.futures.Future()
            self._future = future
            settled = self._settled
        if settled:
            self._fulfil(future)
        else:
            self._arm(FOREVER)
        return future

    def is_completed(self) -> bool:
        return self._settled or self._watch.released or bool(self._inner.is_completed())

    def is_success(self) -> bool:
        return self._error is None and (self._drained or bool(self._inner.is_success()))

    def exception(self) -> Any:
        return None if self._drained else self._inner.exception()

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> Any:
        return self._request.outputs() if self._drained else self._inner.result()

    def source_rank(self) -> int:
        return 0 if self._drained else int(self._inner.source_rank())

    def duration(self) -> float:
        return duration_of(self._inner)

    def kind(self) -> Any:
        return kind_of(self._inner)
