# SPDX-License-Identifier: Apache-2.0
"""Rung 2: a rank takes the state it had at the newest cut, from a snapshot of its own."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
import xxhash
from torch import Tensor

from trainmover.errors import (
    PeerLost,
    ProtocolError,
    StateMismatch,
    TrainmoverError,
    UserError,
)
from trainmover.ids import Epoch, Rank, Step
from trainmover.ownership import open_regular, size_of_regular
from trainmover.protocol.checkpoint import bulk_name
from trainmover.protocol.messages import Foreign, Source, Switch, Warned, WorkerFact
from trainmover.state import tensor_bytes
from trainmover.state.encode import decode
from trainmover.state.snapshot import Snapshot
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import fetch
from trainmover.state.vault import VaultClient, snapshot_name
from trainmover.worker.join.taken import FETCH_SILENCE_S, Taken, in_header
from trainmover.worker.keep.snapshots import Snapshots

_DAMAGED = (
    "its own snapshot of step {} was damaged in memory, so another copy was taken: "
    "look at the memory of its machine"
)


class NoneWhole(PeerLost):
    """There are copies of the state, and none of them is whole."""


def take_back(
    order: Switch,
    rank: Rank,
    tracked: Tracked,
    snapshots: Snapshots,
    *,
    token: bytes,
    cancelled: threading.Event,
    say: Callable[[WorkerFact], None],
    arrived: bool,
) -> Taken:
    """The rank's state after step `order.committed`, put into the tensors of `tracked`.

    arrived: the run stands where its rank did; if not, state that does not fit it is not put

    A copy that is damaged is passed over; if it is this process's own, that is said. Raises
    PeerLost if there is none that can be had, and NoneWhole if there are such, all damaged.
    """
    begin = time.monotonic()
    own = snapshots.of(rank, order.committed)
    snapshot = snapshot_for(order, rank, snapshots, token, cancelled)
    if own is not None and snapshot is not own:
        say(Warned(rank=rank, text=_DAMAGED.format(order.committed)))
    header = decode(snapshot.header)
    fits = arrived or tracked.fits(header["bulk"])
    size = _put(tracked, header["bulk"], snapshot) if fits else 0
    record, graph = in_header(header)
    return Taken(
        bytes=size,
        seconds=time.monotonic() - begin,
        source=rank,
        given={rank: size} if fits else {},
        header=header,
        record=record,
        graph=graph,
        digest=tracked.replica_digest().whole if fits else "",
        is_put=fits,
    )


def _put(tracked: Tracked, header: bytes, snapshot: Snapshot) -> int:
    """How many bytes there are of it."""
    tensors = tracked.bulk_destinations(header)
    with torch.no_grad():
        for tensor, kept in zip(tensors, snapshot.tensors, strict=True):
            _fill(tensor, kept)
        tracked.load_bulk_header(header, tensors)
    return sum(kept.nbytes for kept in snapshot.tensors)


def snapshot_for(
    order: Switch, rank: Rank, snapshots: Snapshots, token: bytes, cancelled: threading.Event
) -> Snapshot:
    """This process's own copy, or the first elsewhere that is whole, which takes the place of a
    damaged one. Raises PeerLost."""
    unfit: TrainmoverError | None = None
    own = snapshots.of(rank, order.committed)
    if own is not None:
        if own.is_whole:
            return own
        unfit = StateMismatch("The one in its own memory is damaged: its checksum differs.")
    found = _whole_copy(order, rank, token, cancelled, unfit)
    snapshots.mend(found)
    return found


def _whole_copy(
    order: Switch,
    rank: Rank,
    token: bytes,
    cancelled: threading.Event,
    unfit: TrainmoverError | None,
) -> Snapshot:
    """The first elsewhere that is whole. unfit: why the own one is not. Raises PeerLost."""
    for copy in _copies(order, rank, token, cancelled):
        try:
            snapshot = copy()
            if snapshot is not None:
                return _of_this(snapshot, order, rank)
        except PeerLost:
            continue
        except (ProtocolError, StateMismatch, UserError) as error:
            unfit = unfit or error
    raise (PeerLost if unfit is None else NoneWhole)(
        f"No copy of rank {rank}'s snapshot of step {order.committed} can be used"
        + (f": {unfit.happened}" if unfit else "."),
        means="This process cannot take the rank now.",
        do="Nothing by hand: the job looks for another way, and says if there is none.",
    )


def fetched(one: Foreign, step: Step, token: bytes) -> Snapshot:
    """Another rank's snapshot of `step`, the first copy that is whole. Raises PeerLost."""
    sources = [Source(one.rank, address) for address in one.processes]
    order = Switch(
        epoch=Epoch(0), committed=step, sources={one.rank: sources},
        records={one.rank: one.vaults}, buddies={},
    )  # fmt: skip
    return _whole_copy(order, one.rank, token, threading.Event(), None)


def _of_this(snapshot: Snapshot, order: Switch, rank: Rank) -> Snapshot:
    if (snapshot.rank, snapshot.step) != (rank, order.committed):
        raise StateMismatch(f"It is one of rank {snapshot.rank} and step {snapshot.step}.")
    return snapshot


def _copies(
    order: Switch, rank: Rank, token: bytes, cancelled: threading.Event
) -> Iterator[Callable[[], Snapshot | None]]:
    """How to fetch each copy elsewhere. None: there is none. To call it may raise any
    TrainmoverError, which concerns this copy alone."""
    name = snapshot_name(rank, order.committed)
    for address in order.records.get(rank, []):
        yield partial(_from_vault, address, name, token)
    for source in order.sources.get(rank, []):
        yield partial(_from_process, source.address, name, token, cancelled)
    if rank in order.files:
        yield partial(_from_files, [Path(path) for path in order.files[rank]])


def _from_vault(address: str, name: str, token: bytes) -> Snapshot | None:
    client = VaultClient(address, token)
    try:
        block = client.get_blob(name)
    finally:
        client.close()
    if block is None:
        return None
    return Snapshot.from_block(bytearray(block) if isinstance(block, bytes) else block)


def _from_process(address: str, name: str, token: bytes, cancelled: threading.Event) -> Snapshot:
    block = bytearray()

    def into(size: bytes) -> list[Tensor]:
        nonlocal block
        block = bytearray(int.from_bytes(size, "little"))
        return [torch.frombuffer(block, dtype=torch.uint8)]

    fetch(
        [address],
        token=token,
        key=name,
        into=into,
        cancelled=cancelled,
        timeout_s=FETCH_SILENCE_S,
    )
    return Snapshot.from_block(block)


def _from_files(paths: list[Path]) -> Snapshot:
    """Raises StateMismatch, which names the file, if one cannot be read or is damaged."""
    try:
        block = bytearray(sum(map(size_of_regular, paths)))
        view = memoryview(block)
        for path in paths:
            with open_regular(path) as file:
                while len(view) and (count := file.readinto(view)):
                    view = view[count:]
    except OSError as error:
        raise _unusable(f"{error.filename} cannot be read: {error.strerror}") from error
    except MemoryError as error:
        raise _unusable(f"{paths[0].parent} has more than fits into memory") from error
    try:
        return Snapshot.from_block(block)
    except (ProtocolError, StateMismatch) as error:
        raise _unusable(f"{_damaged_one(paths, block)} is damaged: its checksum differs") from error


def _damaged_one(paths: list[Path], block: bytearray) -> Path:
    """The one of them to blame. Files of tensors are named by their hash, which tells."""
    begin = 0
    for path in paths[:-1]:
        end = begin + size_of_regular(path)
        if path.name != bulk_name(xxhash.xxh3_128_hexdigest(memoryview(block)[begin:end])):
            return path
        begin = end
    return paths[-1]


def _unusable(happened: str) -> StateMismatch:
    return StateMismatch(
        f"{happened}.",
        means="The job takes the checkpoint before it.",
        do="Look at the disk of the checkpoints.",
    )


def _fill(tensor: Tensor, kept: Tensor) -> None:
    """Put a tensor's flat bytes back, whatever its strides and device are."""
    if tensor_bytes.shares_bytes(tensor):
        tensor_bytes.flat_bytes(tensor).copy_(kept)
    elif tensor.numel():
        tensor.copy_(kept.clone().view(tensor.dtype).view(tensor.shape))
