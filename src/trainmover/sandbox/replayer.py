# SPDX-License-Identifier: Apache-2.0
"""The tap of a shadow run: serves calls from a record, but for those inside the machine."""

import threading
from collections import Counter

import torch
import xxhash
from torch import Tensor

from trainmover.comm import ReplayMismatch
from trainmover.comm.calls.arguments import gives_a_value
from trainmover.comm.calls.tap import Call
from trainmover.sandbox.moments import Moments, refill
from trainmover.sandbox.record import Entry, Record
from trainmover.sandbox.refusals import refused
from trainmover.sandbox.trace import group_of, id_of, is_uneven, trace_of, what_of
from trainmover.state.tensor_bytes import flat_bytes, shares_bytes


class Replayer:
    """Checks that every call is the recorded one, and fills its outputs. From any thread.

    served    how many calls were, or run for real
    under_way how many of those run now
    mismatch  the first that differed: the script may have caught it
    between   a call that gives a value was made between a step and the next fetch
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        self._lock = threading.Lock()
        self._step_calls: list[tuple[str, str]] = []
        self._in_try, self._repeated = Counter[int](), Counter[int]()  # Calls by group.
        self._calls_in_step = 0
        self._is_behind_step = False
        self.between = False
        self.served = 0
        self.under_way = 0
        self.mismatch: ReplayMismatch | None = None

    def serve(self, call: Call) -> bool:
        """Fill the call's outputs; False for one that stays inside the machine: it runs for real.

        Raises ReplayMismatch, naming both calls, if they differ; and what the recorded one raised.
        """
        number, seq = id_of(call)
        entry = self._record.entries.get((number, seq - self._repeated[number]))
        if entry is None or entry.what != what_of(call) or not _fits(entry, call):
            self.mismatch = self.mismatch or self._differs(call, entry)
            raise self.mismatch
        if not call.inside and entry.refused is None:
            _fill_all(call, entry, seq - self._repeated[number])
        with self._lock:
            self._in_try[number] += 1
            self._step_calls.append((group_of(call), what_of(call)))
            self.served += 1
            self.under_way += call.inside
            self.between |= self._is_behind_step and gives_a_value(call.op)
        if not call.inside and entry.refused is not None:
            raise refused(entry.refused)
        return not call.inside

    def done(self, call: Call) -> None:
        """What a call for real has given is between the workers."""
        with self._lock:
            self.under_way -= 1

    def begin_step(self) -> None:
        """A shadow step starts."""
        with self._lock:
            self._step_calls, self._calls_in_step = [], 0
            self._in_try.clear()
            self._is_behind_step = False

    def repeat_step(self) -> None:
        """It starts once more: its calls are those that were made already."""
        with self._lock:
            self._repeated.update(self._in_try)
            self.served -= len(self._step_calls)
        self.begin_step()

    def end_step(self) -> None:
        """It has returned."""
        with self._lock:
            self._calls_in_step = len(self._step_calls)
            self._is_behind_step = True

    def trace(self) -> str:
        """Trace of the last shadow step, and of what came between it and the fetch."""
        with self._lock:
            return trace_of(self._step_calls)

    def step_trace(self) -> str:
        """Of the step alone."""
        with self._lock:
            return trace_of(self._step_calls[: self._calls_in_step])

    def check(self) -> None:
        """Raise ReplayMismatch if a call differed, also where the script has caught it."""
        if self.mismatch is not None:
            raise self.mismatch

    def _differs(self, call: Call, entry: Entry | None) -> ReplayMismatch:
        recorded = "no such call" if entry is None else entry.what
        return ReplayMismatch(
            f"Call {call.seq + 1} of group {call.group} ({call.size} ranks) is {what_of(call)}; "
            f"rank {self._record.rank} had recorded {recorded}.",
            means="No standby can be warmed with this record; the job trains on.",
            do="A script whose collectives depend on time, chance or data cannot have standbys: "
            "let every run make the same calls in the same order. Where they depend on what large "
            "collectives gave, as in a line search, run the job with --record full.",
        )


def _fits(entry: Entry, call: Call) -> bool:
    """Whether the recorded outputs can be put into the call's, if they are to be."""
    if call.inside or entry.refused is not None:
        return True
    if len(entry.outputs) != len(call.outputs):
        return False
    return all(
        kept is not None
        and (
            isinstance(kept.payload, Moments)
            or kept.payload.nbytes == output.nbytes
            or is_uneven(call)
        )
        for kept, output in zip(entry.outputs, call.outputs, strict=True)
    )


@torch.no_grad()
def _fill_all(call: Call, entry: Entry, seq: int) -> None:
    for place, output in enumerate(call.outputs):
        kept = entry.outputs[place]
        assert kept is not None
        _fill(output, kept.payload, _seed(call, seq, place))
    call.source = entry.source


def _seed(call: Call, seq: int, place: int) -> int:
    """Of values to be made up: the same in every shadow run."""
    key = f"{call.number} {seq} {place}"
    return xxhash.xxh3_64_intdigest(key.encode()) >> 1


def _fill(output: Tensor, payload: Tensor | Moments, seed: int) -> None:
    if isinstance(payload, Moments):
        refill(output, payload, seed)
        return
    whole = payload if payload.nbytes == output.nbytes else _resized(payload, output.nbytes)
    if shares_bytes(output):
        flat_bytes(output).copy_(whole)
    else:
        output.copy_(whole.clone().view(output.dtype).view(output.shape))


def _resized(payload: Tensor, size_bytes: int) -> Tensor:
    """The recorded rows over and over, or as many as are asked for; zeros if there were none."""
    if payload.nbytes == 0:
        return torch.zeros(size_bytes, dtype=torch.uint8)
    return payload.repeat(-(-size_bytes // payload.nbytes))[:size_bytes]
