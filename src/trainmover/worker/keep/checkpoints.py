# SPDX-License-Identifier: Apache-2.0
"""Writes this rank's part of a checkpoint: its snapshot, and once what is known of its first steps.
In a last checkpoint also the parts of ranks that are lost, as vaults have them.

From the snapshot in memory and in a thread of its own: no step waits for a disk. What is written
becomes a checkpoint only when the controller has heard of every rank's part; see `controller`.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import xxhash

from trainmover.durable import sync_folder
from trainmover.errors import PeerLost
from trainmover.ids import Rank
from trainmover.protocol.checkpoint import FIRST_STEPS, bulk_name, state_name, writing_name
from trainmover.protocol.messages import Foreign, WorkerFact, WriteCheckpoint, Written, Wrote
from trainmover.state.snapshot import Snapshot
from trainmover.worker.join.going_back import fetched
from trainmover.worker.join.taken import record_of
from trainmover.worker.keep.first_steps import FirstSteps
from trainmover.worker.keep.snapshots import Snapshots

PART_BYTES = 16 * 1024 * 1024
Bytes = bytes | bytearray | memoryview


def write_part(
    order: WriteCheckpoint,
    rank: Rank,
    first_steps: FirstSteps,
    snapshots: Snapshots,
    say: Callable[[WorkerFact], None],
    token: bytes,
) -> None:
    """Have it written; then the rank says so, or why it could not be."""
    foreign = [one for one in order.foreign if one.writer == rank]
    holds_none = any(one.rank == rank for one in order.foreign)

    @contextlib.contextmanager
    def taken(one: Foreign) -> Iterator[Snapshot]:
        yield fetched(one, order.step, token)

    def run() -> None:
        if not holds_none:
            lent = snapshots.lent(rank, order.step)
            say(_write_or_refuse(order, rank, first_steps, lent))
        for one in foreign:
            steps = FirstSteps(record_of(one, token), None)
            say(_write_or_refuse(order, one.rank, steps, taken(one)))

    threading.Thread(target=run, name="tm-checkpoint", daemon=True).start()


_Lent = contextlib.AbstractContextManager[Snapshot | None]


def _write_or_refuse(
    order: WriteCheckpoint, rank: Rank, first_steps: FirstSteps, lent: _Lent
) -> Wrote:
    try:
        return _write(order, rank, first_steps, lent)
    except Exception as error:  # noqa: BLE001  a thread's outermost: the controller gets it
        wrote = Wrote(rank=rank, epoch=order.epoch, step=order.step)
        return _refused(wrote, f"{type(error).__name__}: {error}")


def _write(order: WriteCheckpoint, rank: Rank, first_steps: FirstSteps, lent: _Lent) -> Wrote:
    wrote = Wrote(rank=rank, epoch=order.epoch, step=order.step)
    folder = Path(order.folder) / writing_name(order.step, order.epoch)
    try:
        with lent as snapshot:
            if snapshot is None:
                return _refused(wrote, "its snapshot is not in memory any more")
            folder.mkdir(parents=True, exist_ok=True)
            state = _write_state(folder, rank, snapshot)
        sync_folder(folder)
        shared = Path(order.folder) / FIRST_STEPS
        return Wrote(
            rank=rank,
            epoch=order.epoch,
            step=order.step,
            state=state,
            record=_keep_once(shared, first_steps.record),
            compiled=_keep_once(shared, first_steps.compiled),
        )
    except OSError as error:
        return _refused(wrote, f"{error.strerror or error}: {error.filename or folder}")
    except PeerLost as lost:
        return _refused(wrote, lost.happened)


def _refused(wrote: Wrote, why: str) -> Wrote:
    return Wrote(rank=wrote.rank, epoch=wrote.epoch, step=wrote.step, refused=why)


def _write_state(folder: Path, rank: Rank, snapshot: Snapshot) -> list[Written]:
    """Its tensors, unless another rank that holds the same has begun to, and the rest of it."""
    bulk, rest = snapshot.bulk, snapshot.block[len(snapshot.bulk) :]
    digest = xxhash.xxh3_128_hexdigest(bulk)
    with contextlib.suppress(FileExistsError):
        write_file(folder / bulk_name(digest), bulk, "xb")
    tensors = Written(bulk_name(digest), len(bulk), digest)
    return [tensors, write_file(folder / state_name(rank), rest)]


def write_file(path: Path, data: Bytes, mode: Literal["wb", "xb"] = "wb") -> Written:
    """Safe on disk on return. Raises OSError, and leaves nothing then; FileExistsError for `xb`."""
    file = path.open(mode, buffering=0)
    try:
        with file:
            for part in _parts(data):
                rest = part
                while len(rest):
                    rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        error.filename = str(path)
        raise
    return Written(path.name, len(data), xxhash.xxh3_128_hexdigest(data))


def _parts(data: Bytes) -> list[memoryview]:
    view = memoryview(data)
    return [view[at : at + PART_BYTES] for at in range(0, len(view), PART_BYTES)]


def _keep_once(folder: Path, data: bytes | bytearray | None) -> Written | None:
    """Under the hash of its contents: the next checkpoint finds it there."""
    if data is None:
        return None
    name = xxhash.xxh3_128_hexdigest(data)
    kept = Written(f"{FIRST_STEPS}/{name}", len(data), name)
    path = folder / name
    if path.is_file() and path.stat().st_size == len(data):
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{name}-{os.getpid()}"
    write_file(unfinished, data)
    unfinished.replace(path)
    sync_folder(folder)
    return kept
