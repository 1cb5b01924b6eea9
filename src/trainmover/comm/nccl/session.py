# SPDX-License-Identifier: Apache-2.0
"""Session: one group's NCCL communicator within one epoch."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainmover.comm.calls.arguments import blank
from trainmover.comm.calls.settled import Request
from trainmover.comm.communicator import View
from trainmover.comm.failures import ConnectionEnded, Drained
from trainmover.comm.meet.meeting import Meeting
from trainmover.comm.nccl.calls import CALLS
from trainmover.comm.nccl.connecting import check_same, prove
from trainmover.comm.nccl.device import Device
from trainmover.comm.nccl.ending import endings
from trainmover.comm.nccl.library import Library, NcclError
from trainmover.comm.nccl.stage import Stage
from trainmover.comm.nccl.watcher import watcher
from trainmover.comm.nccl.work import Flight, NcclWork
from trainmover.comm.progress import Stall
from trainmover.errors import PeerLost, UserError

_LOOK_AGAIN_S = 0.0002


class NcclSession:
    """Calls of one epoch; see `PromptSession`.

    Connected with the first call: until then the communicator has no buffers, and the one of the
    epoch before may keep its own. `before` are those: they are freed once all seats have left them.

    calling   held by who is inside a call of the library; see `ending.Ends` over      nothing is
    begun any more; `over_text` says why cut       a call that had begun has not come through proof
    what the group's communicators make of fixed numbers, in the group's first epoch; filled
              in by whoever is first
    """

    immediate = False
    prompt = True

    def __init__(
        self,
        meeting: Meeting,
        comm: int,
        *,
        library: Library,
        device: Device,
        stream: Any,
        proof: list[str],
    ) -> None:
        view: View = meeting.view
        self.epoch, self.name = view.epoch, view.group
        self.seat, self.size = view.seat, view.size
        self.comm = comm
        self.library = library
        self.device = device
        self.stream = stream
        self.before: list[NcclSession] = []
        self.calling = threading.Lock()
        self.ended, self.freed = threading.Event(), threading.Event()
        self.lost = self.over = self.cut = self.connected = False
        self.over_text = ""
        self.failed: RuntimeError | None = None
        self._meeting = meeting
        self._proof = proof
        self._begun = self._swept = 0
        self._sweeping = threading.Lock()
        self._flights: deque[Flight] = deque()
        self._scratch: Tensor | None = None
        self._coalesced = threading.local()
        self._absorb: Callable[[BaseException], bool] | None = None
        self._gave_up: Callable[[], None] | None = None
        self.direct: Mapping[str, Callable[..., Any]] = {op: self._direct(op) for op in CALLS}

    def _direct(self, op: str) -> Callable[..., Any]:
        make = CALLS[op]

        def call(*args: Any, **kwargs: Any) -> Any:
            return make(Stage(self), args, kwargs)

        return call

    def attach(self, absorb: Callable[[BaseException], bool], gave_up: Callable[[], None]) -> None:
        self._absorb, self._gave_up = absorb, gave_up

    def gave_up(self) -> None:
        if self._gave_up is not None:
            self._gave_up()

    def issue(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self.direct[op](*args, **kwargs)

    def start(self, request: Request, told: Callable[[], None] | None) -> Any:
        return CALLS[request.op](Stage(self, told), request.args, request.kwargs)

    def largest(self, numbers: Sequence[int]) -> list[int]:
        raise NotImplementedError("groups of the runtime itself do not talk over a device")

    def peers(self) -> list[int]:
        raise NotImplementedError("groups of the runtime itself do not talk over a device")

    # --- a call -----------------------------------------------------------------------------------

    def launch(self, stage: Stage, outputs: Any) -> NcclWork:
        """Give the stream what the stage has; returns before it is done."""
        if self.device.records():
            raise UserError(
                f"A collective of group {self.name} is called while a CUDA graph is captured.",
                means="The graph would keep this epoch's communicator, and hang or compute garbage "
                "after the next change of machines.",
                do="Leave collectives out of the graph: capture the parts between them.",
            )
        flight = Flight(None, stage.keep, stage.only_reads)
        work = NcclWork(self, flight, outputs, on_host=stage.holds_host)
        opened: list[tuple[Stage, Flight]] | None = getattr(self._coalesced, "opened", None)
        if opened is not None:
            opened.append((stage, flight))
            return work
        self._launch([(stage, flight)])
        self._tell(stage, flight)
        return work

    @contextmanager
    def coalescing(self) -> Iterator[None]:
        """Calls that this thread makes within it are one: sends and receives wait for each
        other."""
        opened: list[tuple[Stage, Flight]] = []
        self._coalesced.opened = opened
        try:
            yield
        finally:
            self._coalesced.opened = None
        if opened:
            self._launch(opened)
        for stage, flight in opened:
            self._tell(stage, flight)

    def _launch(self, staged: Sequence[tuple[Stage, Flight]]) -> None:
        with self.calling, self.device.here():
            self._check_over()
            if not self.connected:
                self._connect()
            self.sweep()
            self.device.follow_caller(self.stream)
            on = (self.comm, self.device.handle(self.stream))
            for stage, _ in staged:
                if blanked := stage.blanked:
                    self.device.behind(self.stream, partial(blank, blanked))
            self._call([call for stage, _ in staged for call in stage.calls], on)
            for stage, _ in staged:
                for operator in stage.operators:
                    self.library.premul_over(operator, self.comm)
                if stage.copies:
                    self.device.behind(self.stream, stage.copy_back)
            event = self.device.mark(self.stream)
            for _, flight in staged:
                flight.event = event
                self._flights.append(flight)
            self._begun += 1
        if self.over:  # Since the check: who ended the session has not seen these.
            self._cut_flights()
            self.judge(self.error)

    def _call(self, calls: Sequence[Callable[..., None]], on: tuple[int, int]) -> None:
        """An error of a session that has ended meanwhile comes of that."""
        try:
            self._as_one(calls, on)
        except NcclError as error:
            if self.over:
                raise ConnectionEnded(self.over_text) from error
            raise

    def _as_one(self, calls: Sequence[Callable[..., None]], on: tuple[int, int]) -> None:
        if len(calls) == 1:
            calls[0](self.library, on)
            return
        self.library.group_start()
        try:
            for call in calls:
                call(self.library, on)
        finally:
            self.library.group_end()

    def _tell(self, stage: Stage, flight: Flight) -> None:
        """Whoever listens hears of outputs that are final."""
        if stage.told is not None and self.await_flight(flight) and not flight.cut:
            stage.told()

    def sweep(self) -> None:
        """Forget calls that the device has completed. Raises RuntimeError if that is lost."""
        with self._sweeping:
            flights = self._flights
            while flights and self.device.has_come(flights[0].event):
                flights.popleft()
                self._swept += 1

    @property
    def completed(self) -> int:
        """Calls that the device has completed. A lost device completes no more."""
        with suppress(RuntimeError):
            self.sweep()
        return self._swept

    def scratch(self) -> Tensor:
        """Return an element to say that one is there; the same one each time."""
        if self._scratch is None:
            self._scratch = self.on_device(torch.zeros(1, dtype=torch.uint8))
        return self._scratch

    def on_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device.device)

    # --- the first call ---------------------------------------------------------------------------

    def _connect(self) -> None:
        """Take the memory that the epoch before has had, once all have left that."""
        for old in self.before:
            old.leave()
        try:
            self._meeting.exchange("left", "")
        except (Drained, PeerLost) as error:
            raise ConnectionEnded(f"{error}: connection closed") from error
        endings.free(self.library, self.before)
        for old in self.before:
            old.freed.wait()
        self.before = []
        found = prove(self)
        check_same(self.name, self._proof[0] if self._proof else "", found)
        if not self._proof:
            self._proof.append(found)
        self.connected = True
        watcher.add(self)

    def run_now(self, *calls: Callable[[tuple[int, int]], None]) -> None:
        """Make calls and wait for them on the host, while connecting."""
        self.device.follow_caller(self.stream)
        for call in calls:
            call((self.comm, self.device.handle(self.stream)))
        event = self.device.mark(self.stream)
        if not self.await_flight(Flight(event, calls)) or self.over:
            self._check_over()
            raise ConnectionEnded(f"Group {self.name}: connection closed while connecting")

    def await_flight(self, flight: Flight) -> bool:
        """Wait on the host; False if it never comes."""
        while not self.device.has_come(flight.event):
            if self.is_lost():
                return False
            time.sleep(_LOOK_AGAIN_S)
        return True

    def leave(self) -> None:
        """Wait until what was begun has come through, or has ended."""
        stall = Stall(lambda: self.completed)
        while self.unfinished and not stall.is_over():
            time.sleep(_LOOK_AGAIN_S)
        if self.over:
            self.ended.wait()

    # --- how it ends ------------------------------------------------------------------------------

    def _check_over(self) -> None:
        if self.over:
            raise self.error

    @property
    def error(self) -> Exception:
        """Why calls end without their outputs."""
        return self.failed or ConnectionEnded(self.over_text)

    def abort(self, why: str) -> None:
        """Nothing is begun any more; what has begun ends in a moment, in a thread.

        The device is asked nothing before the flags are set: a question may block behind a launch
        that waits for room in the queue. So a call is cut unless it is known to have completed.
        """
        if self.over:
            return
        self.over_text = (
            f"Group {self.name}: connection closed, epoch {self.epoch} has ended: {why}"
        )
        self.over = True
        self._cut_flights()
        self._meeting.give_up()
        endings.abort(self.library, self)

    def _cut_flights(self) -> None:
        for flight in list(self._flights):
            flight.cut = self.cut = True

    def is_lost(self) -> bool:
        """Tell whether nothing more is to be expected. Asked by who waits on the host: an error in
        the background, of which nobody else tells, ends the session here."""
        if self.lost:
            return True
        if not self.over and (trouble := self.trouble()) is not None:
            self._fail(trouble)
        return False

    def look(self) -> None:
        """See `watcher`. Under the lock that frees the communicator, and not during a call."""
        if self.over or not self.calling.acquire(blocking=False):
            return
        try:
            trouble = self.trouble()
        finally:
            self.calling.release()
        if trouble is not None and not self.over:
            self._fail(trouble)

    def _fail(self, trouble: RuntimeError) -> None:
        self.failed = trouble
        self.judge(trouble)
        self.abort(str(trouble))

    def trouble(self) -> RuntimeError | None:
        """Return what the library has noted in the background; None for nothing."""
        if self.over or self.freed.is_set():
            return self.failed
        return self.library.async_error(self.comm)

    def translate(self, error: Exception) -> Exception:
        return error

    def judge(self, error: Exception) -> Exception | None:
        """Return what the caller gets to see of it: nothing when a lost peer is the runtime's
        affair."""
        if self._absorb is not None and self._absorb(error):
            return None
        return error

    @property
    def unfinished(self) -> bool:
        with suppress(RuntimeError):  # A lost device completes no more.
            self.sweep()
        return bool(self._flights)

    def come_through(self) -> bool:
        """Tell whether all that was begun is done on the device. Raises RuntimeError if that is
        lost."""
        self.sweep()
        return not self._flights

    def backend(self, device: Any) -> Any:
        return None

    def set_timeout(self, timeout: timedelta) -> None:
        """NCCL knows none: who stands still is found by the runtime."""

    def sequence_number(self) -> int:
        return self._begun

    def sliced(self, op: str, work: Any) -> bool:
        return True
