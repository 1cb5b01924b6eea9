"""Folders of checkpoints: published in one moment, read to the last byte, held by one run."""

from pathlib import Path

import msgspec
import pytest
import xxhash

from trainmover.errors import UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol import messages as m
from trainmover.protocol.checkpoint import state_name, writing_name
from trainmover.server.checkpoints.check import newest_whole
from trainmover.server.checkpoints.folder import CheckpointFolder


@pytest.fixture
def folder(tmp_path: Path):
    taken = CheckpointFolder.take(tmp_path / "kept")
    yield taken
    taken.close()


def write(folder: CheckpointFolder, step: int, *, epoch: int = 1, record: bytes = b"r") -> None:
    """What two ranks would write, published."""
    writing = folder.path / writing_name(step, epoch)
    writing.mkdir()
    states = {}
    for rank in (0, 1):
        data = f"state of {rank} after {step}".encode()
        (writing / state_name(rank)).write_bytes(data)
        states[rank] = [named(f"step-{step:012d}/{state_name(rank)}", data)]
    kept = named(f"first-steps/{xxhash.xxh3_128_hexdigest(record)}", record)
    (folder.path / "first-steps").mkdir(exist_ok=True)
    (folder.path / kept.file).write_bytes(record)
    folder.publish(checkpoint(folder, step, epoch, states, {0: kept}), keep=2)


def named(file: str, data: bytes) -> m.Written:
    return m.Written(file, len(data), xxhash.xxh3_128_hexdigest(data))


def checkpoint(
    folder: CheckpointFolder,
    step: int,
    epoch: int,
    states: dict[int, list[m.Written]],
    records: dict[int, m.Written],
) -> m.Checkpoint:
    return m.Checkpoint(
        folder=str(folder.path), run_id="r", step=step, epoch=epoch, argv=["train.py"],
        module=False, script="", machines=2, nproc=1, torch="2", trainmover="1", python="3",
        states=states, records=records, compiled={}, recorded=[],
    )  # fmt: skip


def steps(folder: CheckpointFolder) -> list[str]:
    return sorted(path.name for path in folder.path.glob("step-*"))


def test_the_newest_are_kept_and_what_they_share_with_them(folder: CheckpointFolder) -> None:
    write(folder, 10, record=b"old")
    write(folder, 20)
    write(folder, 30)
    assert steps(folder) == ["step-000000000020", "step-000000000030"]
    assert len(list((folder.path / "first-steps").iterdir())) == 1
    found, damaged = newest_whole([folder.path])
    assert (found and found.step, damaged) == (30, [])


def test_one_that_is_published_already_is_not_published_again(folder: CheckpointFolder) -> None:
    write(folder, 10)
    found, _ = newest_whole([folder.path])
    assert found is not None
    folder.publish(found, keep=2)
    assert newest_whole([folder.path]) == (found, [])
    lost = msgspec.structs.replace(found, step=Step(20))
    with pytest.raises(FileNotFoundError):
        folder.publish(lost, keep=2)


def test_a_successor_leaves_alone_what_is_being_written(tmp_path: Path) -> None:
    writing = tmp_path / writing_name(Step(10), Epoch(1))
    writing.mkdir()
    CheckpointFolder.take(tmp_path, going_on=True).close()
    assert writing.exists()
    CheckpointFolder.take(tmp_path).close()
    assert not writing.exists()


@pytest.mark.parametrize("data", [b"state of 1 after 2X", b"", None])
def test_a_damaged_one_is_not_counted_among_those_that_are_kept(
    folder: CheckpointFolder, data: bytes | None
) -> None:
    write(folder, 10)
    write(folder, 20)
    path = folder.path / "step-000000000020" / state_name(1)
    path.unlink() if data is None else path.write_bytes(data)
    write(folder, 30)
    assert [name[-2:] for name in steps(folder)] == ["10", "20", "30"]
    write(folder, 40)
    assert [name[-2:] for name in steps(folder)] == ["30", "40"]


@pytest.mark.parametrize(
    ("file", "damage", "why"),
    [
        ("rank-00001.state", b"state of 1 after 2X", "its checksum differs"),
        ("rank-00001.state", b"", "has 0 bytes and not"),
        ("rank-00000.state", None, "cannot be read"),
        ("manifest.json", b'{"xxh3": "0", "checkpoint": {}}', "manifest's checksum differs"),
        ("manifest.json", b"\xff", "manifest is none"),
        ("manifest.json", None, "manifest cannot be read"),
    ],
)
def test_a_damaged_one_is_passed_over_by_name(
    folder: CheckpointFolder, file: str, damage: bytes | None, why: str
) -> None:
    write(folder, 10)
    write(folder, 20)
    path = folder.path / "step-000000000020" / file
    path.unlink() if damage is None else path.write_bytes(damage)
    found, damaged = newest_whole([folder.path])
    assert found is not None
    assert found.step == 10
    assert len(damaged) == 1
    assert "step-000000000020 is passed over" in damaged[0]
    assert why in damaged[0]


def test_a_shared_record_that_is_damaged_damages_all(folder: CheckpointFolder) -> None:
    write(folder, 10)
    write(folder, 20)
    next((folder.path / "first-steps").iterdir()).write_bytes(b"x")
    assert newest_whole([folder.path])[0] is None


def test_one_that_a_rank_could_not_use_is_passed_over(folder: CheckpointFolder) -> None:
    write(folder, 10)
    write(folder, 20)
    found, _ = newest_whole([folder.path], {Step(20)})
    assert found is not None
    assert found.step == 10


def test_a_folder_that_was_moved_is_read_where_it_lies(folder: CheckpointFolder) -> None:
    write(folder, 10)
    moved = folder.path.rename(folder.path.with_name("elsewhere"))
    found, _ = newest_whole([moved])
    assert found is not None
    assert Path(found.path(found.states[0][0])).is_file()


def test_what_was_never_published_goes_when_the_next_run_takes_the_folder(tmp_path: Path) -> None:
    left = tmp_path / writing_name(Step(10), Epoch(1))
    left.mkdir()
    CheckpointFolder.take(tmp_path).close()
    assert not left.exists()


def test_a_damaged_one_of_the_same_step_is_replaced(folder: CheckpointFolder) -> None:
    write(folder, 10)
    write(folder, 20)
    (folder.path / "step-000000000020" / state_name(Rank(0))).unlink()
    write(folder, 20, epoch=5)
    found, damaged = newest_whole([folder.path])
    assert found is not None
    assert (found.step, found.epoch, damaged) == (20, 5, [])


def test_two_runs_cannot_write_to_one_folder(folder: CheckpointFolder) -> None:
    with pytest.raises(UserError, match="Another run"):
        CheckpointFolder.take(folder.path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        CheckpointFolder.take(tmp_path / "file" / "kept")
