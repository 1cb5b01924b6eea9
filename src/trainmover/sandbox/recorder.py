# SPDX-License-Identifier: Apache-2.0
"""The tap of a live rank's first steps.

What a machine's ranks say among themselves is not kept: a standby's workers say it again.
"""

import sys
import threading
import time

from torch import Tensor

from trainmover.comm.calls.tap import Call
from trainmover.errors import UserError
from trainmover.sandbox.binding import Binding
from trainmover.sandbox.moments import moments_of
from trainmover.sandbox.process.memory import private_bytes
from trainmover.sandbox.process.opened import place_of_script
from trainmover.sandbox.record import SMALL_BYTES_MAX, Entry, Kept, Record
from trainmover.sandbox.refusals import refusal_of
from trainmover.sandbox.trace import CallId, group_of, id_of, trace_of, what_of
from trainmover.state.tensor_bytes import flat_bytes, is_plain

_FROM_ANYBODY = "recv_anysource"


class Recorder:
    """Keeps what every call gave. Calls may complete on any thread, in any order.

    It ends where a shadow run of the same steps will stand: at a fetch (`close`). A call that was
    made before, and not waited for, may end behind it.

    full  keep every output whole
    early  the first call between a fetch and the step for which it was, by its place in the script
    """

    def __init__(self, rank: int, binding: Binding, *, full: bool = False) -> None:
        self._rank = rank
        self._binding = binding
        self._full = full
        self._lock = threading.Lock()
        self._entries: dict[CallId, Entry] = {}
        self._open: set[CallId] = set()
        self._from_anybody: list[Call] = []
        self._step_calls: list[tuple[str, str]] = []
        self._calls_in_step = 0
        self._steps = 0
        self._signature = ""
        self._payload_full = 0
        self._begun_ns = 0
        self._drawn = False
        self._since_drawn = ""
        self.early = ""

    def serve(self, call: Call) -> bool:
        """Note the call; it runs for real."""
        with self._lock:
            if self._drawn and not self._since_drawn:
                self._since_drawn = place_of_script(sys._getframe(1), through=True) or "a library"
            if self.closed:
                return False
            self._open.add(id_of(call))
            self._step_calls.append((group_of(call), what_of(call)))
            if call.op == _FROM_ANYBODY and not call.inside:
                self._from_anybody.append(call)
        return False

    def done(self, call: Call) -> None:
        """Keep the outputs; of a call inside the machine only that there was one."""
        with self._lock:
            if id_of(call) not in self._open:
                return
        if call.error is not None:
            self._refused(call, call.error)
            return
        outputs = () if call.inside else tuple(self._kept(output) for output in call.outputs)
        entry = Entry(what_of(call), outputs)
        with self._lock:
            self._entries[id_of(call)] = entry
            self._payload_full += sum(output.nbytes for output in call.outputs)
            self._open.discard(id_of(call))

    def _refused(self, call: Call, error: Exception) -> None:
        with self._lock:
            self._entries[id_of(call)] = Entry(what_of(call), refused=refusal_of(error))
            self._from_anybody = [other for other in self._from_anybody if other is not call]
            self._open.discard(id_of(call))

    def _kept(self, output: Tensor) -> Kept:
        if not is_plain(output):
            raise UserError(
                f"A collective gave a {output.layout} tensor in the job's first steps.",
                means="It cannot be recorded, so no standby could be warmed.",
                do="Reduce dense tensors: for embeddings, leave out sparse=True.",
            )
        real = output.is_floating_point() or output.is_complex()
        large = real and output.nbytes > SMALL_BYTES_MAX
        if large and not self._full:
            return Kept(moments_of(output), large)
        return Kept(flat_bytes(output).cpu().clone(), large)

    def fetches(self) -> None:
        """The batch before was for no step, or for this one as well."""
        self._drawn, self._since_drawn = False, ""

    def drew(self) -> None:
        """A batch was fetched."""
        self._drawn = True

    def begin_step(self) -> None:
        """A step starts: the trace of the step before is forgotten."""
        with self._lock:
            self.early = self.early or self._since_drawn
            self._drawn, self._since_drawn = False, ""
            self._begun_ns = self._begun_ns or time.time_ns()
            if not self.closed:
                self._step_calls, self._calls_in_step = [], 0

    def end_step(self) -> None:
        """It has returned; what comes until the fetch is recorded as well."""
        with self._lock:
            if not self.closed:
                self._calls_in_step = len(self._step_calls)

    @property
    def closed(self) -> bool:
        """Whether it has come to its end."""
        return self._steps > 0

    def close(self, steps: int, signature: str) -> None:
        """Here, after so many steps, a shadow run can be left. signature: of the tracked state"""
        with self._lock:
            self._steps, self._signature = steps, signature

    def step_trace(self) -> str:
        """Of the last step alone, without what came between it and the end."""
        with self._lock:
            return trace_of(self._step_calls[: self._calls_in_step])

    @property
    def waits(self) -> bool:
        """Whether a call that was made before its end is still under way."""
        with self._lock:
            return bool(self._open)

    def finish(self) -> Record:
        """The record, once it is closed; without calls that are still under way."""
        with self._lock:
            for call in self._from_anybody:
                if id_of(call) in self._open:
                    continue
                known = self._entries[id_of(call)]
                source = int(call.handle.source_rank())
                self._entries[id_of(call)] = Entry(known.what, known.outputs, source)
            self._from_anybody = []
            return Record(
                self._binding,
                self._rank,
                self._steps,
                trace_of(self._step_calls),
                self._signature,
                dict(self._entries),
                payload_full=self._payload_full,
                held_bytes=private_bytes(),
                begun_ns=self._begun_ns,
            )
