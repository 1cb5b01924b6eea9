"""Folders of checkpoints: published in one moment, looked at or verified, held by one run."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import xxhash

from trainmover.errors import UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol import messages as m
from trainmover.protocol.checkpoint import state_name, writing_name
from trainmover.server.checkpoints.check import (
    MANIFEST_BYTES_MAX,
    Manifest,
    newest_usable,
    newest_whole,
    verified,
)
from trainmover.server.checkpoints.folder import CheckpointFolder


@pytest.fixture
def folder(tmp_path: Path):
    taken = CheckpointFolder.take(tmp_path / "kept")
    yield taken
    taken.close()


def write(
    folder: CheckpointFolder,
    step: int,
    *,
    epoch: int = 1,
    record: bytes = b"r",
    compiled: bytes = b"",
) -> None:
    """What two ranks would write, published."""
    writing = folder.path / writing_name(step, epoch)
    writing.mkdir()
    states = {}
    for rank in (0, 1):
        data = f"state of {rank} after {step}".encode()
        (writing / state_name(rank)).write_bytes(data)
        states[rank] = [named(f"step-{step:012d}/{state_name(rank)}", data)]
    (folder.path / "first-steps").mkdir(exist_ok=True)
    kept = shared(folder, record)
    made = {0: shared(folder, compiled)} if compiled else {}
    done = checkpoint(folder, step, epoch, states, {0: kept})
    folder.publish(msgspec.structs.replace(done, compiled=made), keep=2)


def shared(folder: CheckpointFolder, data: bytes) -> m.Written:
    kept = named(f"first-steps/{xxhash.xxh3_128_hexdigest(data)}", data)
    (folder.path / kept.file).write_bytes(data)
    return kept


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
    found, damaged = newest_usable([folder.path])
    assert (found and found.step, damaged) == (30, [])


def test_one_that_is_published_already_is_not_published_again(folder: CheckpointFolder) -> None:
    write(folder, 10)
    found, _ = newest_usable([folder.path])
    assert found is not None
    folder.publish(found, keep=2)
    assert newest_usable([folder.path]) == (found, [])
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


@pytest.mark.parametrize("data", [b"", None])
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
    found, damaged = newest_whole(folder.path)
    assert found is not None
    assert found.step == 10
    assert len(damaged) == 1
    assert "step-000000000020 is passed over" in damaged[0]
    assert why in damaged[0]
    if why == "its checksum differs":
        assert newest_usable([folder.path])[0].step == 20  # type: ignore[union-attr]
    else:
        assert newest_usable([folder.path]) == (found, damaged)


def test_to_look_takes_a_moment_however_large_states_are(folder: CheckpointFolder) -> None:
    write(folder, 10)
    file = f"step-000000000010/{state_name(Rank(0))}"
    os.truncate(folder.path / file, 1 << 40)
    change_manifest(folder, lambda one: {"states": {0: [m.Written(file, 1 << 40, "0")]}})
    found, said = newest_usable([folder.path])
    assert (found and found.bytes, said) == (1 << 40, [])


def change_manifest(
    folder: CheckpointFolder, change: Callable[[m.Checkpoint], dict[str, object]], step: int = 10
) -> None:
    """With a checksum that is right: whoever writes there can do so."""
    path = folder.path / f"step-{step:012d}" / "manifest.json"
    manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    one = msgspec.json.decode(manifest.checkpoint, type=m.Checkpoint)
    data = msgspec.json.encode(msgspec.structs.replace(one, **change(one)))
    new = Manifest(xxhash.xxh3_128_hexdigest(data), msgspec.Raw(data))
    path.write_bytes(msgspec.json.encode(new))


@pytest.mark.parametrize(
    ("file", "target", "why"),
    [
        ("manifest.json", "", "its manifest cannot be read: it is no regular file"),
        ("manifest.json", "/dev/zero", "its manifest cannot be read: it is a link"),
        (state_name(Rank(1)), "", "rank-00001.state cannot be read: it is no regular file"),
        (state_name(Rank(1)), "/etc/passwd", "rank-00001.state cannot be read: it is a link"),
    ],
)
def test_nothing_but_regular_files_is_read(
    folder: CheckpointFolder, file: str, target: str, why: str
) -> None:
    write(folder, 10)
    write(folder, 20)
    path = folder.path / "step-000000000020" / file
    path.unlink()
    path.symlink_to(target) if target else os.mkfifo(path)
    for found, said in (newest_usable([folder.path]), newest_whole(folder.path)):
        assert found is not None
        assert (found.step, len(said)) == (10, 1)
        assert said[0].endswith(f"{why}.")
    write(folder, 30)  # Neither to publish nor to sweep waits for it.


def test_a_manifest_has_a_greatest_size(folder: CheckpointFolder) -> None:
    write(folder, 10)
    os.truncate(folder.path / "step-000000000010/manifest.json", MANIFEST_BYTES_MAX + 1)
    ((_, why),) = verified(folder.path)
    assert why == f"its manifest cannot be read: it has more than {MANIFEST_BYTES_MAX} bytes"


@pytest.mark.parametrize(
    "file",
    [
        "../secret",
        "/etc/passwd",
        "first-steps/..",
        "step-000000000010/../../secret",
        "manifest",
        "",
    ],
)
def test_a_manifest_names_files_of_checkpoints_only(folder: CheckpointFolder, file: str) -> None:
    write(folder, 10)
    (folder.path.parent / "secret").write_bytes(b"secret")
    for kind in ("records", "compiled"):
        change_manifest(folder, lambda one, kind=kind: {kind: {0: named(file, b"secret")}})
        found, said = newest_usable([folder.path])
        assert found is None
        assert said[0].endswith(f"its manifest names {file!r}, which no checkpoint has.")


@pytest.mark.parametrize("opened", ["", "first-steps", "step-000000000010/manifest.json"])
def test_compiled_code_that_others_can_have_written_is_left_out(
    folder: CheckpointFolder, opened: str
) -> None:
    folder.path.chmod(0o755)
    write(folder, 10, compiled=b"code")
    (folder.path / "first-steps").chmod(0o755)
    found, said = newest_usable([folder.path])
    assert found is not None
    assert (found.compiled.keys(), said) == ({0}, [])
    path = folder.path / opened
    path.chmod(0o777)
    found, said = newest_usable([folder.path])
    assert found is not None
    assert (found.step, found.compiled, len(said)) == (10, {}, 1)
    assert f"{path} can be written by other users (mode 0777)" in said[0]


def test_compiled_code_that_is_missing_costs_no_checkpoint(folder: CheckpointFolder) -> None:
    write(folder, 10, compiled=b"code")
    (folder.path / "first-steps" / xxhash.xxh3_128_hexdigest(b"code")).unlink()
    found, said = newest_usable([folder.path])
    assert found is not None
    assert (found.step, found.compiled, len(said)) == (10, {}, 1)


def test_folders_and_files_of_others_are_left_alone(folder: CheckpointFolder) -> None:
    theirs = folder.path / "step-1000"
    theirs.mkdir()
    elsewhere = folder.path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis").touch()
    (elsewhere / ("0" * 32)).touch()
    (folder.path / "first-steps").symlink_to(elsewhere)
    for step in (10, 20, 30):
        write(folder, step)
    assert theirs.exists()
    assert {"thesis", "0" * 32} <= {path.name for path in elsewhere.iterdir()}


def test_a_shared_record_that_is_damaged_damages_all(folder: CheckpointFolder) -> None:
    write(folder, 10)
    write(folder, 20)
    next((folder.path / "first-steps").iterdir()).write_bytes(b"x")
    assert newest_usable([folder.path])[0] is None
    found, said = newest_usable([folder.path], records_are_elsewhere=True)
    assert (found and found.step, said) == (20, [])


def test_one_that_a_rank_could_not_use_is_passed_over(folder: CheckpointFolder) -> None:
    write(folder, 10)
    write(folder, 20)
    found, _ = newest_usable([folder.path], {Step(20)})
    assert found is not None
    assert found.step == 10


def test_a_folder_that_was_moved_is_read_where_it_lies(folder: CheckpointFolder) -> None:
    write(folder, 10)
    moved = folder.path.rename(folder.path.with_name("elsewhere"))
    found, _ = newest_usable([moved])
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
    found, damaged = newest_usable([folder.path])
    assert found is not None
    assert (found.step, found.epoch, damaged) == (20, 5, [])


def test_what_others_have_put_there_stays(folder: CheckpointFolder) -> None:
    """As torchtitan's checkpoints, whose folders are called step-1000, and notes of people."""
    theirs = [
        "step-1000/.metadata", "step-1000/manifest.json", "step-000000000002/weights.pt",
        ".writing-on/draft", ".replaced-by/x", "first-steps/notes.txt", "first-steps/readme",
        ".writing-1-1/mine.txt",
    ]  # fmt: skip
    for name in theirs:
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).write_text("precious")
    write(folder, 10)
    (folder.path / "step-000000000010" / "notes.txt").write_text("the best one")
    for step in (20, 30):
        write(folder, step)
    for name in theirs:
        assert (folder.path / name).read_text() == "precious"
    left = [path.name for path in (folder.path / "step-000000000010").iterdir()]
    assert left == ["notes.txt"]


def test_a_folder_of_others_that_has_our_name_is_set_aside(folder: CheckpointFolder) -> None:
    theirs = folder.path / "step-000000000010"
    theirs.mkdir()
    (theirs / "weights.pt").write_text("precious")
    write(folder, 10)
    write(folder, 20)
    assert steps(folder) == ["step-000000000010", "step-000000000020"]
    kept = folder.path / ".replaced-step-000000000010" / "weights.pt"
    assert kept.read_text() == "precious"


def test_no_link_is_followed_to_the_lock(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match="cannot be written"):
        CheckpointFolder.take(tmp_path)
    assert not (tmp_path / "nowhere").exists()


def test_two_runs_cannot_write_to_one_folder(folder: CheckpointFolder) -> None:
    with pytest.raises(UserError, match="Another run"):
        CheckpointFolder.take(folder.path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        CheckpointFolder.take(tmp_path / "file" / "kept")
