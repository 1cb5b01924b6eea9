"""Calls as a script makes them, and records of them, without groups."""

from typing import Any

import torch

from trainmover.comm import Call
from trainmover.sandbox.binding import Binding
from trainmover.sandbox.record import Record
from trainmover.sandbox.recorder import Recorder

BINDING = Binding(
    script="5c", arguments=("--lr", "0.1"), world_size=4, nproc=2,
    torch="2.13.0", trainmover="0.1", python="3.11.2", gpus="none",
)  # fmt: skip


def call(
    *outputs: torch.Tensor,
    op: str = "allreduce",
    seq: int = 0,
    number: int = 0,
    size: int = 4,
    seat: int = 0,
    root: Any = None,
    reduction: str | None = "SUM",
) -> Call:
    shapes, dtypes = tuple(tuple(t.shape) for t in outputs), tuple(str(t.dtype) for t in outputs)
    meta = (shapes, dtypes, root, reduction)
    group = f"mesh_{number}_of_{seat}"
    return Call(group, seq, op, meta, [], list(outputs), number=number, size=size, seat=seat)


def closed(recorder: Recorder, signature: str) -> Recorder:
    """The rank stands at the fetch behind its third step."""
    recorder.close(3, signature)
    return recorder


def record_of(*calls: Call, rank: int = 3, full: bool = False, signature: str = "sig") -> Record:
    recorder = Recorder(rank, BINDING, full=full)
    for each in calls:
        assert recorder.serve(each) is False
        recorder.done(each)
    record = closed(recorder, signature).finish()
    return record
