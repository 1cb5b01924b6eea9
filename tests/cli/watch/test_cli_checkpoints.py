"""`trainmover checkpoints`: what is there, and whether a job could go on from it."""

import json
from pathlib import Path

import pytest

from trainmover.cli.verbs import parser_of
from trainmover.cli.watch import checkpoints
from trainmover.errors import UserError
from trainmover.ids import Epoch, Step
from trainmover.protocol.checkpoint import MANIFEST, writing_name
from trainmover.protocol.messages import Checkpoint
from trainmover.server.checkpoints.folder import CheckpointFolder


def main(argv: list[str]) -> int:
    return checkpoints.main(parser_of("checkpoints").parse_args(argv))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Steps 10 and 20, the newer one damaged."""
    folder = CheckpointFolder.take(tmp_path / "kept")
    for step in (10, 20):
        (folder.path / writing_name(Step(step), Epoch(1))).mkdir()
        checkpoint = Checkpoint(
            folder="", run_id="calm-lynx", step=Step(step), epoch=Epoch(1), argv=["x"],
            module=False, script="", machines=2, nproc=1, torch="", trainmover="", python="",
            states={}, records={}, compiled={}, recorded=[],
        )  # fmt: skip
        folder.publish(checkpoint, keep=3)
    (folder.path / "step-000000000020" / MANIFEST).write_bytes(b"{}")
    folder.close()
    return folder.path


def test_each_is_shown_with_what_is_wrong(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(kept)]) == 0
    newest, older = capsys.readouterr().out.splitlines()
    assert newest.startswith("step-000000000020  cannot be used: its manifest")
    assert older == "step-000000000010  whole: run calm-lynx, 2 ranks, 0.0 MB"


def test_programs_get_json(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(kept), "--json"])
    assert [one["whole"] for one in json.loads(capsys.readouterr().out)] == [False, True]


def test_a_folder_without_any_is_said_by_the_status(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 1


def test_nothing_is_exported_over_what_is_there(kept: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exists already"):
        main([str(kept), "--export", str(tmp_path)])
    with pytest.raises(UserError, match="no checkpoint"):
        main([str(tmp_path), "--export", str(tmp_path / "out")])
