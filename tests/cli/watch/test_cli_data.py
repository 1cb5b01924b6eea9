"""`trainmover data` says which samples came again, and its exit status whether any did."""

import json
from pathlib import Path

import pytest

from trainmover.cli.main import main
from trainmover.ids import Epoch, Rank, Step
from trainmover.journal import Journal
from trainmover.protocol.messages import Draw, JobSpec, Row


def write(path: Path, *steps: list[int]) -> str:
    """A journal in which rank 0 drew these ids."""
    journal = Journal.create(path, JobSpec(run_id="r", argv=["train.py"]))
    for step, ids in enumerate(steps, start=1):
        draws = [Draw(source="0", data_pass=0, ids=list(ids))] if ids else []
        row = Row(step=Step(step), at_us=step, values={}, samples=draws)
        journal.append_rows(Rank(0), Epoch(1), [row])
    journal.close()
    return str(path)


def test_a_pass_in_which_each_came_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = write(tmp_path / "j", [3, 1], [2, 0])
    assert main(["data", "--journal", journal, "--steps"]) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert shown[1:] == [
        "0 0 1-2 0 4 yes",
        "step 1 rank 0 loop 0 pass 0: 3 1",
        "step 2 rank 0 loop 0 pass 0: 2 0",
    ]


def test_samples_that_came_again_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = write(tmp_path / "j", [3, 1], [1, 0])
    assert main(["data", "--journal", journal]) == 1
    out = capsys.readouterr().out
    assert "NO: 1 came again" in out
    assert "loop 0 pass 0: 1 in step 1 (rank 0), step 2 (rank 0)" in out


def test_json_has_passes_and_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = write(tmp_path / "j", [3, 1], [1, 0])
    assert main(["data", "--journal", journal, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["passes"][0]["repeated"] == [{"id": 1, "places": [[1, 0], [2, 0]]}]
    assert [step["ids"] for step in told["steps"]] == [[3, 1], [1, 0]]


def test_a_job_that_was_not_asked_knows_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "--journal", write(tmp_path / "j", [])]) == 0
    assert "samples=True" in capsys.readouterr().out
