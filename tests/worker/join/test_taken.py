"""Which record of first steps serves a rank, and where it is found."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
import xxhash
from vaults import TOKEN, Buddies

from trainmover.comm import Call
from trainmover.errors import PeerLost, ProtocolError, StateMismatch
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Records, Stored, Switch
from trainmover.sandbox import layout
from trainmover.sandbox.binding import Binding, binding_of
from trainmover.sandbox.record import Record, blob_name
from trainmover.sandbox.recorder import Recorder
from trainmover.worker.join import taken
from trainmover.worker.join.taken import Shelf, first_steps
from trainmover.worker.step.keeper import Moment, RankRecord

BINDING = binding_of(["train.py"], module=False, world_size=4, nproc=1)
PLACES: Records = {
    Rank(0): [Stored(Rank(0), ["a", "b"]), Stored(Rank(1), ["c"])],
    Rank(1): [Stored(Rank(1), ["b", "c"]), Stored(Rank(0), ["a"])],
    Rank(2): [Stored(Rank(2), ["b"])],
    Rank(3): [Stored(Rank(0), ["a"]), Stored(Rank(1), ["c"])],
}


def record_of(rank: int, size: int) -> Record:
    """One small output that is the rank's own, one large that is not."""
    recorder = Recorder(rank, BINDING)
    outputs = (torch.tensor([size]), torch.full((3000,), float(rank)))
    for seq, output in enumerate(outputs):
        meta = ((tuple(output.shape),), (str(output.dtype),), None, "SUM")
        call = Call("0", seq, "allreduce", meta, [], [output], size=4)
        recorder.serve(call)
        recorder.done(call)
    recorder.close(3, "")
    return recorder.finish()


Vaults = dict[tuple[str, str], bytes]


@pytest.fixture
def vaults(monkeypatch: pytest.MonkeyPatch) -> Vaults:
    """Address and name to blob; rank 2 has only what is its own, rank 3 nothing."""
    held = {
        ("a", blob_name(0)): layout.to_bytes(record_of(0, 10)),
        ("c", blob_name(1)): layout.to_bytes(record_of(1, 10)),
        ("b", blob_name(2)): layout.to_bytes(record_of(2, 12).without_large(0)),
    }
    monkeypatch.setattr(taken, "_blob", lambda address, token, name: held.get((address, name)))
    return held


def found(rank: int, shelf: Shelf | None = None, binding: Binding = BINDING) -> Record:
    return first_steps(Rank(rank), PLACES, b"token", binding, {} if shelf is None else shelf)


def test_a_rank_is_served_by_its_own_record_or_the_one_it_refers_to(vaults: Vaults) -> None:
    assert [found(rank).rank for rank in range(4)] == [0, 1, 2, 0]
    own = {rank: found(rank).blob for rank in range(4)}
    assert own[0] == vaults["a", blob_name(0)]
    assert own[2] == vaults["b", blob_name(2)]
    assert own[3] is None  # so its buddy is not given what lies elsewhere twice
    whole = found(2)
    assert whole.base is None
    assert all(None not in entry.outputs for entry in whole.entries.values())


def test_where_one_copy_is_lost_or_broken_the_other_serves(vaults: Vaults) -> None:
    del vaults["a", blob_name(0)]
    assert [found(rank).rank for rank in (0, 1, 3)] == [1, 1, 1]
    assert found(0).blob == vaults["c", blob_name(1)]  # to be kept under its own name again
    vaults["a", blob_name(0)] = vaults["c", blob_name(1)][:-1]
    assert found(3).rank == 1


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (lambda data: None, PeerLost, "No machine holds a record"),
        (lambda data: data[:50], ProtocolError, "no record of first steps"),
    ],
)
def test_without_any_copy_there_is_no_record(
    vaults: Vaults, spoil: Callable[[bytes], bytes], error: type[Exception], said: str
) -> None:
    for place, data in vaults.items():
        vaults[place] = spoil(data)
    with pytest.raises(error, match=said):
        found(3)


def test_a_record_of_other_arguments_is_refused(vaults: Vaults) -> None:
    other = msgspec.structs.replace(BINDING, arguments=("--lr", "1"))
    with pytest.raises(StateMismatch, match=r"arguments \(none\) and not --lr 1"):
        found(3, binding=other)


def test_what_was_fetched_once_is_not_fetched_again(vaults: Vaults) -> None:
    shelf: Shelf = {}
    first = [found(rank, shelf).own() for rank in range(4)]
    vaults.clear()
    assert [found(rank, shelf).own() for rank in range(4)] == first
    assert shelf.keys() == {0, 1, 2}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """First steps in a checkpoint's folder that nobody else can write."""
    folder = tmp_path / "kept" / "first-steps"
    folder.mkdir(parents=True)
    for each in (folder, folder.parent):
        each.chmod(0o755)
    return folder


def test_a_file_of_a_checkpoint_counts_only_if_it_is_whole(kept: Path) -> None:
    path = kept / xxhash.xxh3_128_hexdigest(b"compiled")
    place: Records = {Rank(0): [Stored(Rank(0), [], compiled=str(path))]}
    for data, found in ((b"compiled", b"compiled"), (b"compilee", None)):
        path.write_bytes(data)
        path.chmod(0o644)
        assert taken.compiled_elsewhere(Rank(0), place, b"token") == found


@pytest.mark.parametrize("level", [0, 1, 2])
def test_code_that_others_can_have_written_is_refused(kept: Path, level: int) -> None:
    path = kept / xxhash.xxh3_128_hexdigest(b"compiled")
    path.write_bytes(b"compiled")
    [path, *path.parents][level].chmod(0o777)
    place: Records = {Rank(0): [Stored(Rank(0), [], compiled=str(path))]}
    with pytest.raises(ProtocolError, match=r"is not taken: .* can be written by other users"):
        taken.compiled_elsewhere(Rank(0), place, b"token")


@pytest.mark.parametrize("target", ["", "/dev/zero"])
def test_a_record_that_is_no_regular_file_is_none(kept: Path, target: str) -> None:
    path = kept / xxhash.xxh3_128_hexdigest(b"record")
    path.symlink_to(target) if target else os.mkfifo(path)
    place: Records = {Rank(0): [Stored(Rank(0), [], file=str(path))]}
    with pytest.raises(PeerLost, match="No machine holds a record"):
        first_steps(Rank(0), place, b"token", BINDING, {})


def test_a_vault_that_is_gone_does_not_hide_the_next(buddies: Buddies) -> None:
    vault, server = buddies.make()
    record = RankRecord(Step(8), [], Moment(b"", {}))
    vault.put_record(3, 8, True, record.to_bytes())
    order = Switch(
        epoch=Epoch(2),
        committed=Step(7),
        sources={},
        records={Rank(3): ["127.0.0.1:1", server.address]},
        buddies={},
    )
    assert taken._record_from_vault(order, Rank(3), TOKEN) == (record, None)
    with pytest.raises(PeerLost, match="record of rank 3 for step 9") as lost:
        taken._record_from_vault(msgspec.structs.replace(order, committed=Step(8)), Rank(3), TOKEN)
    assert lost.value.do
