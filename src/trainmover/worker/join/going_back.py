"""Rung 2: a rank takes the state it had at the newest cut, from a snapshot of its own."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from trainmover.errors import (
    PeerLost,
    ProtocolError,
    StateMismatch,
    TrainmoverError,
    UserError,
)
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Foreign, Source, Switch, Warned, WorkerFact
from trainmover.state import tensor_bytes
from trainmover.state.encode import decode
from trainmover.state.snapshot import Snapshot
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import fetch
from trainmover.state.vault import VaultClient, snapshot_name
from trainmover.worker.join.taken import FETCH_SILENCE_S, Taken
from trainmover.worker.keep.snapshots import Snapshots
from trainmover.worker.step.keeper import RankRecord

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
    return Taken(
        bytes=size,
        seconds=time.monotonic() - begin,
        source=rank,
        given={rank: size} if fits else {},
        header=header,
        record=RankRecord.from_bytes(header["record"]),
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
            block = copy()
            if block is not None:
                return _of_this(Snapshot.from_block(block), order, rank)
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
) -> Iterator[Callable[[], bytearray | None]]:
    """How to fetch each copy elsewhere. None: there is none. To call it may raise any
    TrainmoverError, which concerns this copy alone."""
    name = snapshot_name(rank, order.committed)
    for address in order.records.get(rank, []):
        yield partial(_from_vault, address, name, token)
    for source in order.sources.get(rank, []):
        yield partial(_from_process, source.address, name, token, cancelled)
    if rank in order.files:
        yield partial(_from_files, [Path(path) for path in order.files[rank]])


def _from_vault(address: str, name: str, token: bytes) -> bytearray | None:
    client = VaultClient(address, token)
    try:
        block = client.get_blob(name)
    finally:
        client.close()
    return bytearray(block) if isinstance(block, bytes) else block


def _from_process(address: str, name: str, token: bytes, cancelled: threading.Event) -> bytearray:
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
    return block


def _from_files(paths: list[Path]) -> bytearray:
    """Nothing, which is no snapshot, if they cannot be read."""
    try:
        block = bytearray(sum(path.stat().st_size for path in paths))
        view = memoryview(block)
        for path in paths:
            with path.open("rb", buffering=0) as file:
                while len(view) and (count := file.readinto(view)):
                    view = view[count:]
    except OSError:
        return bytearray()
    return block


def _fill(tensor: Tensor, kept: Tensor) -> None:
    """Put a tensor's flat bytes back, whatever its strides and device are."""
    if tensor_bytes.shares_bytes(tensor):
        tensor_bytes.flat_bytes(tensor).copy_(kept)
    elif tensor.numel():
        tensor.copy_(kept.clone().view(tensor.dtype).view(tensor.shape))
