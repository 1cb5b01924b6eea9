"""`trainmover incident` shows what the journal knows: phases, who stood where, certificates."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainmover.cli.main import main
from trainmover.controller.state import Incident, Kind
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.journal import Journal
from trainmover.protocol import messages as m
from trainmover.server.view.snapshot import incident_json

CERTIFICATE = m.Certificate(
    rank=Rank(1), source_rank=Rank(0), step=Step(7), epoch=Epoch(2), source_digest="ab",
    joiner_digest="ab", trace="t", position="loop 0: pass 0, 7 batches taken", bytes=4_700_000,
    state_ms=12.34, given={Rank(0): 4_000_000, Rank(2): 700_000},
)  # fmt: skip
INCIDENT = Incident(
    number=1, kind=Kind.RECOVERY, machine=MachineId("m2"), joiner=MachineId("m4"),
    ranks=(Rank(1),), cause="machine m2 was lost", rung=1, epoch=Epoch(2), step=Step(7),
    why_rung="state and records live on other machines", redone=0, downtime_ms=20.0,
    marks={"heard": 1000, "detect": 3000, "drain": 9500}, certificates=(CERTIFICATE,),
    positions={
        Rank(0): m.Position(rank=Rank(0), epoch=Epoch(2), committed=Step(7), gate=Step(0)),
        Rank(2): m.Position(rank=Rank(2), epoch=Epoch(2), committed=Step(6), gate=Step(7)),
    },
    held={Rank(1): [Step(7), Step(8)]}, stacks={Rank(1): "Thread 1\n  File train.py"},
)  # fmt: skip


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("trainmover.cli.watch.incident.incidents", lambda path: [INCIDENT])
    return str(tmp_path / "journal.sqlite")


def test_everything_is_shown(journal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["incident", "1", "--journal", journal]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in (
        "#1 recovery m2 -> m4",
        "cause machine m2 was lost",
        "way replace the machine; the step is run again: state and records live on other machines",
        "detect 2.0 ms",
        "drain 6.5 ms",
        "downtime 20 ms = detect 2 + drain 6 + unnoticed 12",
        "record of rank 1 was held for step 7, 8",
        "where rank 1 stood: Thread 1 File train.py",
        "0 7 before the commit of step 8",
        "2 6 at the commit of step 7",
        "rank 1 has the state of rank 0: 4.7 MB (4.0 MB from rank 0, 700.0 kB from rank 2) in 12",
        "ab at the source, the same here",
        "after step 7, membership 2; loop 0: pass 0, 7 batches taken",
    ):
        assert text in shown


def test_a_status_has_the_newest_and_an_older_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def of(number: int) -> dict[str, Any]:
        return incident_json(replace(INCIDENT, number=number))

    class Run:
        def __init__(self, run: object) -> None: ...

        def status(self) -> dict[str, Any]:
            return {"incidents": [of(11), of(12)]}

        def incident(self, number: int) -> dict[str, Any]:
            assert number < 11
            return of(number)

    monkeypatch.setattr("trainmover.cli.watch.incident.Client", Run)
    monkeypatch.setattr("trainmover.cli.watch.incident.which_run", lambda options: None)
    for arguments, number in ((["3"], 3), (["11"], 11), ([], 12)):
        assert main(["incident", *arguments, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["number"] == number
    assert main(["incident", "13"]) == 2
    assert "There is no incident 13: there are 12." in capsys.readouterr().err


def test_json_is_that_of_the_api_and_the_last_is_the_default(
    journal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["incident", "--journal", journal, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(incident_json(INCIDENT)))


def test_an_incident_that_was_not_is_refused(
    journal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["incident", "2", "--journal", journal]) == 2
    assert "There is no incident 2: there are 1." in capsys.readouterr().err


def test_a_journal_without_incidents_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Journal.create(tmp_path / "j.sqlite", m.JobSpec(run_id="r", argv=["train.py"])).close()
    assert main(["incident", "--journal", str(tmp_path / "j.sqlite")]) == 2
    assert "There was no incident." in capsys.readouterr().err
