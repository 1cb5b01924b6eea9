"""`trainmover losses` has every committed number, bit for bit."""

import csv
import io
import json
import math
from pathlib import Path

import pytest

from trainmover.cli.main import main
from trainmover.ids import Epoch, Rank, Step
from trainmover.journal import Journal
from trainmover.protocol.messages import JobSpec, Row

THIRD = 1 / 3


def write(path: Path) -> str:
    """Two ranks, of which one reports another number at one step."""
    journal = Journal.create(path, JobSpec(run_id="r", argv=["train.py"]))
    numbers = {
        0: [{"loss": THIRD}, {"loss": 0.1 + 0.2, "lr, now": 1e-300}],
        1: [{"loss": math.nan}, {}],
    }
    for rank, values in numbers.items():
        rows = [Row(step=Step(i), at_us=i, values=each) for i, each in enumerate(values, start=1)]
        journal.append_rows(Rank(rank), Epoch(1), rows)
    journal.close()
    return str(path)


def test_a_table_has_every_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["losses", "--journal", write(tmp_path / "j")]) == 0
    head, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert head == ["rank", "step", "loss", "lr, now"]
    assert rows == [
        ["0", "1", repr(THIRD), ""],
        ["0", "2", "0.30000000000000004", "1e-300"],
        ["1", "1", "nan", ""],
        ["1", "2", "", ""],
    ]
    assert float(rows[0][2]) == THIRD


def test_json_is_a_line_for_each_step_and_a_rank_can_be_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["losses", "--journal", write(tmp_path / "j"), "--rank", "1", "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told == [
        {"rank": 1, "step": 1, "values": {"loss": "nan"}},
        {"rank": 1, "step": 2, "values": {}},
    ]


def test_a_run_that_has_committed_nothing_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Journal.create(tmp_path / "j", JobSpec(run_id="r", argv=["train.py"])).close()
    assert main(["losses", "--journal", str(tmp_path / "j")]) == 1
    assert capsys.readouterr().out == "rank,step\n"
