# SPDX-License-Identifier: Apache-2.0
"""A call on its way through the device, and the handle of it.

The host does not wait for a call: `wait` has the caller's stream wait for its end. From there on
the memory that the call reads and writes may be freed: the device gives it to nobody before that
stream is past the call. Without `wait` it stays alive until the event has come.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from trainmover.comm.calls.arguments import blank, flat
from trainmover.comm.calls.settled import FOREVER
from trainmover.comm.nccl.device import await_events
from trainmover.torch_internals.distributed.c10d import Work, answers_as_work

if TYPE_CHECKING:
    from trainmover.comm.nccl.session import NcclSession


@dataclass(eq=False)
class Flight:
    """Call under way.

    event    comes when its outputs are final, or its session has ended; None: not on its way yet
    keep     stays alive until then, or until the caller's stream waits for it
    reads    it writes nothing at this seat
    cut      its session was ended before the event had come: the outputs are no value
    """

    event: Any
    keep: Any
    reads: bool = False
    cut: bool = False


@answers_as_work
class NcclWork(Work):
    """A call that may still run. outputs: the caller's tensors that it fills."""

    _future: "torch.futures.Future[Any] | None" = None
    _error: Exception | None = None

    def __init__(
        self, session: "NcclSession", flight: Flight, outputs: Any, *, on_host: bool = False
    ) -> None:
        super().__init__()
        self._session = session
        self._flight = flight
        self._outputs = outputs
        self._on_host = on_host

    def wait(self, timeout: timedelta = FOREVER) -> bool:
        """Raises what the call raised, except a lost peer that the runtime handles."""
        session, flight = self._session, self._flight
        if self._error is not None:
            raise self._error
        if flight.event is None:
            pass  # It was never given to the device.
        elif timeout and not flight.cut:
            if not await_events(session.device, [flight.event], timeout.total_seconds()):
                raise RuntimeError("Operation timed out!")
        elif self._on_host:
            session.await_flight(flight)
        else:
            session.device.hold_caller(flight.event, flight.keep, session.is_lost)
            flight.keep = ()
        if flight.event is None or flight.cut or session.lost:
            self._go_on_without()
        else:
            session.sweep()
        return True

    def _go_on_without(self) -> None:
        """The session has ended: whose affair is it?"""
        session = self._session
        known = session.judge(session.error)
        if known is not None:
            self._error = known
            raise known
        if not self._flight.reads:
            blank(flat(self._outputs))
        session.gave_up()

    def get_future(self) -> "torch.futures.Future[Any]":
        """Return a future of the outputs; whoever waits for it comes behind the call."""
        if self._future is None:
            session, flight = self._session, self._flight
            outputs = list(flat(self._outputs))
            if flight.event is None:  # Given up before it was given to the device.
                self._future = torch.futures.Future()
                self._future.set_result(outputs)
            else:
                self._future = session.device.promise(flight.event, session.stream, outputs)
        return self._future

    def is_completed(self) -> bool:
        event = self._flight.event
        return self._session.lost or (event is not None and self._session.device.has_come(event))

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Any:
        return self._error

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        """torch's own spins until the future is fulfilled, which ours is at once."""
        self.wait()

    def result(self) -> list[torch.Tensor]:
        return list(flat(self._outputs))

    def source_rank(self) -> int:
        return 0
