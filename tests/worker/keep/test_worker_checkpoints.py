"""A rank's part of a checkpoint: on disk, whole, or said to be impossible."""

import errno
import os
import queue
from pathlib import Path

import pytest
import torch
import xxhash
from vaults import TOKEN, Buddies

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Foreign, Stored, WriteCheckpoint, Wrote
from trainmover.rank.cuts import WANTED
from trainmover.sandbox.record import blob_name
from trainmover.state.snapshot import Snapshot
from trainmover.state.transfer import Offered
from trainmover.state.vault import snapshot_name
from trainmover.worker.keep import checkpoints
from trainmover.worker.keep.checkpoints import write_part
from trainmover.worker.keep.first_steps import FirstSteps
from trainmover.worker.keep.snapshots import Snapshots


class Nowhere:
    """A state server that nobody asks."""

    def offer(self, name: str, give: object) -> None: ...
    def withdraw(self, name: str) -> None: ...


@pytest.fixture
def said() -> "queue.Queue[object]":
    return queue.Queue()


@pytest.fixture
def snapshots(said: "queue.Queue[object]") -> Snapshots:
    """Those of rank 1, with one of step 10; for checkpoints alone, so no vault is asked."""
    kept = Snapshots(b"t" * 32, Nowhere(), said.put, checkpoint_every=10)  # type: ignore[arg-type]
    take(kept, 10)
    said.get(timeout=30)
    return kept


def take(snapshots: Snapshots, step: int) -> None:
    state = Offered(b"header", [torch.arange(1000.0)], "")
    rank, epoch = Rank(1), Epoch(1)
    snapshots.take(rank, Step(step), state, epoch=epoch, vault="v", begun_ns=0, step_us=0)


def write(folder: Path, snapshots: Snapshots, said: "queue.Queue[object]", step: int = 10) -> Wrote:
    order = WriteCheckpoint(epoch=Epoch(1), step=Step(step), folder=str(folder))
    write_part(order, Rank(1), FirstSteps(b"record", None), snapshots, said.put, TOKEN)
    wrote = said.get(timeout=30)
    assert isinstance(wrote, Wrote)
    return wrote


def test_what_is_written_is_the_snapshot_and_its_checksum(
    tmp_path: Path, snapshots: Snapshots, said: "queue.Queue[object]"
) -> None:
    wrote = write(tmp_path, snapshots, said)
    parts = [(tmp_path / ".writing-10-1" / part.file).read_bytes() for part in wrote.state]
    assert [xxhash.xxh3_128_hexdigest(data) for data in parts] == [p.digest for p in wrote.state]
    (tensor,) = Snapshot.from_block(bytearray(b"".join(parts))).tensors
    assert torch.equal(tensor.view(torch.float32), torch.arange(1000.0))
    assert wrote.record is not None
    assert (tmp_path / wrote.record.file).read_bytes() == b"record"


def test_tensors_that_another_rank_has_begun_to_write_are_not_written_again(
    tmp_path: Path, snapshots: Snapshots, said: "queue.Queue[object]"
) -> None:
    bulk, _ = write(tmp_path, snapshots, said).state
    written = tmp_path / ".writing-10-1" / bulk.file
    written.write_bytes(b"being written")
    assert write(tmp_path, snapshots, said).state[0] == bulk
    assert written.read_bytes() == b"being written"


def test_a_disk_without_room_is_said_and_leaves_nothing(
    tmp_path: Path,
    snapshots: Snapshots,
    said: "queue.Queue[object]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("trainmover.worker.keep.checkpoints.os.fsync", full)
    wrote = write(tmp_path, snapshots, said)
    assert wrote.refused.startswith("No space left on device: ")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_snapshot_that_is_gone_is_said(
    tmp_path: Path, snapshots: Snapshots, said: "queue.Queue[object]"
) -> None:
    assert "not in memory" in write(tmp_path, snapshots, said, step=9).refused


def test_memory_that_is_being_written_is_not_used_again(
    snapshots: Snapshots, said: "queue.Queue[object]"
) -> None:
    with snapshots.lent(Rank(1), Step(10)) as snapshot:
        assert snapshot is not None
        before = bytes(snapshot.block)
        snapshots.completed(Step(20))
        take(snapshots, 20)
        said.get(timeout=30)
        assert bytes(snapshot.block) == before


def test_a_checkpoint_is_wanted_at_its_multiples_and_once(snapshots: Snapshots) -> None:
    snapshots.completed(Step(10))
    wanted = [step for step in range(11, 22) if snapshots.flag(Rank(1), Step(step)) == WANTED]
    assert wanted == [20, 21]  # Until it was taken.
    fresh = Snapshots(b"t" * 32, Nowhere(), lambda _: None, checkpoint_every=10)  # type: ignore[arg-type]
    assert [fresh.flag(Rank(1), Step(step)) for step in (18, 19, 20)] == [0, 0, WANTED]


def test_a_writer_that_fails_says_so(
    tmp_path: Path,
    snapshots: Snapshots,
    said: "queue.Queue[object]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError("too little")

    monkeypatch.setattr(checkpoints, "_write_state", no_memory)
    assert write(tmp_path, snapshots, said).refused == "MemoryError: too little"


def lost_rank(vaults: list[str], rank: int = 2) -> list[Foreign]:
    stored = Stored(rank=Rank(rank), vaults=vaults)
    return [Foreign(writer=Rank(1), rank=Rank(rank), vaults=vaults, processes=[], records=[stored])]


def write_all(
    folder: Path, snapshots: Snapshots, said: "queue.Queue[object]", foreign: list[Foreign]
) -> dict[Rank, Wrote]:
    order = WriteCheckpoint(epoch=Epoch(2), step=Step(10), folder=str(folder), foreign=foreign)
    write_part(order, Rank(1), FirstSteps(b"record", None), snapshots, said.put, TOKEN)
    ranks = {Rank(1), *(one.rank for one in foreign)}
    facts = [said.get(timeout=30) for _ in ranks]
    return {fact.rank: fact for fact in facts if isinstance(fact, Wrote)}


def test_the_part_of_a_lost_rank_is_written_out_of_its_vault(
    tmp_path: Path, snapshots: Snapshots, said: "queue.Queue[object]", buddies: Buddies
) -> None:
    vault, server = buddies.make()
    theirs = Snapshot.of(2, 10, b"header", [torch.arange(1000.0)], None)
    theirs.seal()
    vault.put_blob(snapshot_name(2, 10), bytes(theirs.block))
    vault.put_blob(blob_name(Rank(2)), b"their record")
    wrote = write_all(tmp_path, snapshots, said, lost_rank([server.address]))
    assert [fact.refused for fact in wrote.values()] == ["", ""]
    assert wrote[Rank(1)].state[0] == wrote[Rank(2)].state[0]  # Equal tensors are one file.
    folder = tmp_path / ".writing-10-2"
    parts = [(folder / part.file).read_bytes() for part in wrote[Rank(2)].state]
    assert b"".join(parts) == bytes(theirs.block)
    record = wrote[Rank(2)].record
    assert record is not None
    assert (tmp_path / record.file).read_bytes() == b"their record"


def test_one_that_no_vault_has_is_refused(
    tmp_path: Path, snapshots: Snapshots, said: "queue.Queue[object]", buddies: Buddies
) -> None:
    _, server = buddies.make()
    wrote = write_all(tmp_path, snapshots, said, lost_rank([server.address]))
    assert wrote[Rank(1)].refused == ""
    assert "No copy of rank 2's snapshot of step 10" in wrote[Rank(2)].refused


def test_who_holds_none_of_its_own_rank_takes_it_from_a_vault_too(
    tmp_path: Path, snapshots: Snapshots, said: "queue.Queue[object]", buddies: Buddies
) -> None:
    vault, server = buddies.make()
    own = snapshots.of(Rank(1), Step(10))
    assert own is not None
    vault.put_blob(snapshot_name(1, 10), bytes(own.block))
    (wrote,) = write_all(tmp_path, snapshots, said, lost_rank([server.address], 1)).values()
    assert wrote.refused == ""
    assert said.empty()
