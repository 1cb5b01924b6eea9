"""Folders that do not fit are refused before anything is started."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from trainmover.errors import UserError
from trainmover.ids import Epoch, Step
from trainmover.launch.checkpoints import CheckpointOptions, Prepared, prepare
from trainmover.protocol import messages as m
from trainmover.protocol.checkpoint import writing_name
from trainmover.server.checkpoints.folder import CheckpointFolder
from trainmover.version import VERSION


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def spec(tmp_path: Path) -> m.JobSpec:
    (tmp_path / "train.py").write_text("print()")
    return m.JobSpec(run_id="new", argv=["train.py", "--lr", "1"], machines=2, cwd=str(tmp_path))


def fill(folder: Path, spec: m.JobSpec) -> None:
    """One checkpoint of step 10 that the job of `spec` has written."""
    with ExitStack() as stack:
        identity = prepare(CheckpointOptions(), spec, stack).spec
        taken = CheckpointFolder.take(folder)
        stack.callback(taken.close)
        (folder / writing_name(Step(10), Epoch(3))).mkdir()
        taken.publish(
            m.Checkpoint(
                folder="", run_id="old", step=10, epoch=3, argv=spec.argv, module=False,
                script=identity.script, machines=2, nproc=1, torch="2", trainmover=VERSION,
                python=identity.python, states={}, records={}, compiled={}, recorded=[],
            ),
            keep=3,
        )  # fmt: skip


def resume(folder: Path, spec: m.JobSpec, held: ExitStack) -> Prepared:
    return prepare(CheckpointOptions(resume=folder), spec, held)


def test_a_resumed_job_writes_on_to_the_folder_it_comes_from(
    tmp_path: Path, spec: m.JobSpec, held: ExitStack
) -> None:
    fill(tmp_path / "kept", spec)
    prepared = resume(tmp_path / "kept", spec, held)
    assert prepared.spec.resume is not None
    assert prepared.spec.resume.step == 10
    assert prepared.spec.checkpoint == str(tmp_path / "kept")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"argv": ["train.py", "--lr", "2"]}, "arguments --lr 1 and not --lr 2"),
        ({"machines": 1, "nproc": 2}, "machines 2 and not 1; ranks a machine 1 and not 2"),
    ],
)
def test_a_folder_of_another_job_is_refused_with_the_difference(
    tmp_path: Path, spec: m.JobSpec, held: ExitStack, changes: dict[str, object], said: str
) -> None:
    fill(tmp_path / "kept", spec)
    with pytest.raises(UserError, match="of another job") as caught:
        resume(tmp_path / "kept", msgspec.structs.replace(spec, **changes), held)
    assert said in caught.value.happened


def test_a_script_that_was_changed_is_another_job(
    tmp_path: Path, spec: m.JobSpec, held: ExitStack
) -> None:
    fill(tmp_path / "kept", spec)
    (tmp_path / "train.py").write_text("print(1)")
    with pytest.raises(UserError, match="another text of the script"):
        resume(tmp_path / "kept", spec, held)


def test_a_job_that_begins_does_not_write_among_older_checkpoints(
    tmp_path: Path, spec: m.JobSpec, held: ExitStack
) -> None:
    fill(tmp_path / "kept", spec)
    with pytest.raises(UserError, match="run old, the newest of step 10") as caught:
        prepare(CheckpointOptions(folder=tmp_path / "kept"), spec, held)
    assert "--resume" in caught.value.do


@pytest.mark.parametrize("damage", [True, False])
def test_a_folder_without_a_whole_checkpoint_is_refused(
    tmp_path: Path, spec: m.JobSpec, held: ExitStack, damage: bool
) -> None:
    if damage:
        fill(tmp_path / "kept", spec)
        (tmp_path / "kept" / "step-000000000010" / "manifest.json").write_bytes(b"{}")
    with pytest.raises(UserError, match="no checkpoint") as caught:
        resume(tmp_path / "kept", spec, held)
    assert ("is passed over" in caught.value.happened) == damage


def again(folder: Path, spec: m.JobSpec, held: ExitStack) -> Prepared:
    return prepare(CheckpointOptions(folder=folder, again=True), spec, held)


def test_the_same_call_begins_and_then_goes_on(tmp_path: Path, spec: m.JobSpec) -> None:
    folder = tmp_path / "kept"
    with ExitStack() as held:
        assert again(folder, spec, held).spec.resume is None
    fill(folder, spec)
    with ExitStack() as held:
        prepared = again(folder, spec, held)
        assert prepared.spec.resume is not None
        assert (prepared.spec.resume.step, prepared.spec.checkpoint) == (10, str(folder))


def test_the_same_call_of_another_job_is_refused_with_what_to_do(
    tmp_path: Path, spec: m.JobSpec, held: ExitStack
) -> None:
    fill(tmp_path / "kept", spec)
    other = msgspec.structs.replace(spec, argv=["train.py", "--lr", "1", "--steps", "9"])
    with pytest.raises(UserError, match="of another job") as refused:
        again(tmp_path / "kept", other, held)
    assert f"trainmover checkpoints {tmp_path / 'kept'} --export OUT" in refused.value.do
