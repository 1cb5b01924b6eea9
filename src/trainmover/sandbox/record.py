"""What a rank's collectives gave during set-up and first steps, to be served to a shadow run.

Paper section 4.2: outputs of collectives are stored once per job, in its first steps; the hook is
gone afterwards and costs nothing. Here every rank stores all of its outputs, verbatim.

A record holds calls by (group, number in the group). Replay asks in the same order, so a call that
differs is found at once. The trace of a step is the hash of what it called, in order, without the
numbers: two workers with equal traces run the same program.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import xxhash
from torch import Tensor

from trainmover.comm.tap import Call
from trainmover.errors import ProtocolError, UserError
from trainmover.state.encode import decode, encode

STEPS = 3
"""Steps recorded and shadowed. DDP rebuilds its buckets in the second; the third is steady."""

CallId = tuple[str, int]


@dataclass(frozen=True)
class Entry:
    """One call: what it was, and its outputs ([] for a barrier or a send)."""

    what: str
    outputs: list[Tensor]


@dataclass(frozen=True)
class Record:
    """All calls of a rank up to the end of step `STEPS`."""

    rank: int
    steps: int
    trace: str
    entries: dict[CallId, Entry] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """For the vault; no pickle inside."""
        entries = [[group, seq, e.what, e.outputs] for (group, seq), e in self.entries.items()]
        return encode([self.rank, self.steps, self.trace, entries])

    @staticmethod
    def from_bytes(data: bytes) -> "Record":
        """Raises ProtocolError on malformed bytes."""
        try:
            rank, steps, trace, entries = decode(data)
            table = {(group, seq): Entry(what, outs) for group, seq, what, outs in entries}
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"These bytes are no record of first steps: {error}.") from error
        return Record(rank, steps, trace, table)


def what_of(call: Call) -> str:
    """A call in words that two processes can compare: operation, shapes, dtypes, root."""
    return f"{call.op}{call.meta!r}"


def trace_of(calls: Iterable[tuple[str, str]]) -> str:
    """Hash of (group, call) pairs in order: 16 hex digits."""
    digest = xxhash.xxh3_64()
    for group, what in calls:
        digest.update(f"{group}\0{what}\0".encode())
    return digest.hexdigest()


class Recorder:
    """The tap of a live rank's first steps. Calls may complete on any thread, in any order."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._lock = threading.Lock()
        self._entries: dict[CallId, Entry] = {}
        self._open: set[CallId] = set()
        self._step_calls: list[tuple[str, str]] = []
        self.in_optimizer = False
        self.called_since_gate = False

    def serve(self, call: Call) -> bool:
        """Note the call; it runs for real."""
        if self.in_optimizer:
            raise UserError(
                f"The optimizer made a collective of its own ({call.op}) inside step().",
                means="Such an update could be half done when a machine is lost.",
                do="This version supports optimizers whose step() is local.",
            )
        with self._lock:
            self.called_since_gate = True
            self._open.add((call.group, call.seq))
            self._step_calls.append((call.group, what_of(call)))
        return False

    def done(self, call: Call) -> None:
        """Keep the outputs."""
        entry = Entry(what_of(call), [output.detach().clone() for output in call.outputs])
        with self._lock:
            self._entries[call.group, call.seq] = entry
            self._open.discard((call.group, call.seq))

    def begin_step(self) -> None:
        """A step starts: the trace of the step before is forgotten."""
        with self._lock:
            self._step_calls = []

    def finish(self, steps: int) -> Record | None:
        """The record so far; None if calls are still under way (never waited for by the script)."""
        with self._lock:
            if self._open:
                return None
            return Record(self._rank, steps, trace_of(self._step_calls), dict(self._entries))


class Replayer:
    """The tap of a shadow run: serves every call from a record, communicates nothing."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._step_calls: list[tuple[str, str]] = []
        self.served = 0

    def serve(self, call: Call) -> bool:
        """Fill the call's outputs. Raises ReplayMismatch, naming both calls, if they differ."""
        from trainmover.comm import ReplayMismatch

        entry = self._record.entries.get((call.group, call.seq))
        what = what_of(call)
        if entry is None or entry.what != what:
            recorded = "nothing" if entry is None else entry.what
            raise ReplayMismatch(
                f"Call {call.seq} of group {call.group} is {what}; rank {self._record.rank} "
                f"had recorded {recorded}.",
                means="The standby cannot be warmed with this record; the job trains on.",
                do="A script whose collectives depend on time or chance cannot have standbys.",
            )
        with torch.no_grad():
            for output, recorded_output in zip(call.outputs, entry.outputs, strict=True):
                output.copy_(recorded_output)
        self._step_calls.append((call.group, what))
        self.served += 1
        return True

    def done(self, call: Call) -> None:
        """Nothing to do: a served call is done."""

    def begin_step(self) -> None:
        """A shadow step starts."""
        self._step_calls = []

    def trace(self) -> str:
        """Trace of the last shadow step."""
        return trace_of(self._step_calls)


def blob_name(rank: int) -> str:
    """Under which name a rank's record lies in a vault."""
    return f"record/{rank}"


def describe(record: Record) -> dict[str, Any]:
    """Counts for logs and tests."""
    size = sum(t.nbytes for entry in record.entries.values() for t in entry.outputs)
    return {"rank": record.rank, "calls": len(record.entries), "bytes": size}
