"""The demo's verdict: equal means equal in every bit, and a difference is named."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainmover.cli.demo import demo, pictures
from trainmover.cli.demo.recording import (
    Recording,
    Span,
    differences,
    incident_report,
    missing,
    report,
)
from trainmover.cli.verbs import parser_of
from trainmover.controller.state import Incident, Job, Kind, MachineState, Outcome
from trainmover.errors import UserError
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.journal import CommittedRow
from trainmover.protocol.messages import JobSpec

MOVE = Incident(
    number=1,
    kind=Kind.MOVE,
    machine=MachineId("m2"),
    joiner=MachineId("m3"),
    ranks=(Rank(1),),
    cause="a move was asked for",
    rung=0,
    epoch=Epoch(2),
    outcome=Outcome.DONE,
    step=Step(2),
    downtime_ms=12.5,
    marks={"begun": 1_000_000, "bind": 1_200_000, "switchover": 1_250_000},
)
RECOVERY = replace(MOVE, number=2, kind=Kind.RECOVERY, machine=MachineId("m1"), step=Step(3))


def row(rank: int, step: int, loss: float) -> CommittedRow:
    return CommittedRow(Rank(rank), Step(step), Epoch(1), 1_000_000 + 50_000 * step, {"loss": loss})


def recording(*, last: float = 0.25, digest: str = "d") -> Recording:
    rows = [row(rank, step, 1 / step) for rank in range(2) for step in range(1, 4)]
    rows.append(row(1, 4, last))
    finished = {Rank(rank): (Step(4), digest) for rank in range(2)}
    spec = JobSpec(run_id="r", argv=["x.py"], machines=2)
    job = Job(spec=spec, incidents=(MOVE, RECOVERY), finished=finished)
    spans = [Span(MachineId("m1"), "active", 900_000, 1_300_000)]
    return Recording(rows, job, spans)


def test_equal_runs_have_no_differences() -> None:
    assert differences(recording(), recording()) == []


def test_the_last_bit_of_a_loss_is_a_difference() -> None:
    found = differences(recording(), recording(last=0.25000000000000006))
    assert found == ["1 losses differ, first at step 4 of rank 1"]


def test_a_missing_step_and_another_final_state_are_differences() -> None:
    short = replace(recording(digest="e"), rows=recording().rows[:-1])
    found = differences(recording(), short)
    assert found == ["1 steps were committed in one run only", "the final states differ"]


def test_a_demo_without_its_incidents_is_no_success() -> None:
    job = replace(recording().job, incidents=(replace(MOVE, outcome=Outcome.CANCELLED),))
    assert missing(job) == ["no move was completed", "no recovery was completed"]
    assert missing(recording().job) == []


def test_the_report_is_json_and_names_downtimes_and_phases() -> None:
    result = json.loads(json.dumps(report(recording(), recording(), [])))
    assert (result["bitwise_equal"], result["steps"]) == (True, 4)
    assert result["step_ms_median"] == 50.0
    assert result["incidents"][0] == json.loads(json.dumps(incident_report(MOVE)))
    assert result["incidents"][0]["phases_ms"] == {"bind": 200.0, "switchover": 50.0}


def test_pictures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures.losses(tmp_path / "losses.png", recording(), recording())
    pictures.incidents(tmp_path / "incidents.png", recording())
    assert {path.name for path in tmp_path.iterdir()} == {"losses.png", "incidents.png"}


def test_a_demo_without_its_incidents_is_drawn_too(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    calm = recording()
    pictures.incidents(
        tmp_path / "incidents.png", replace(calm, job=replace(calm.job, incidents=()))
    )
    assert (tmp_path / "incidents.png").exists()


def test_every_colour_of_a_machine_has_a_name_in_the_legend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    assert pictures.STATES.keys() == set(MachineState)
    spans = [
        Span(MachineId("m1"), str(state), 900_000 + at, 900_001 + at)
        for at, state in enumerate(MachineState)
    ]
    lacking: list[set[Any]] = []

    def look(plt: Any, figure: Any, path: Path) -> None:
        for axis in figure.axes:
            bars = {bar.patches[0].get_facecolor() for bar in axis.containers}
            named = {bar.get_facecolor() for bar in axis.get_legend().legend_handles}
            lacking.append(bars - named)

    monkeypatch.setattr(pictures, "_save", look)
    pictures.incidents(tmp_path / "incidents.png", replace(recording(), spans=spans))
    assert lacking == [set()] * 3


def demonstrated(argv: list[str]) -> int:
    return demo.main(parser_of("demo").parse_args(argv))


def test_the_script_of_the_demo_is_found() -> None:
    assert demo.script().name == "gpt.py"


@pytest.mark.parametrize(
    "argv", [["--steps", "3"], ["--data", "/nowhere"], ["--speed"], ["--out", "/dev/null/x"]]
)
def test_a_demo_that_cannot_work_is_refused(argv: list[str]) -> None:
    with pytest.raises(UserError):
        demonstrated(argv)


@pytest.mark.turns(4)
@pytest.mark.timeout(400)
def test_the_demo_holds_what_it_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own_home: Path
) -> None:
    code = demonstrated(["--json", "--steps", "120", "--out", str(tmp_path / "out")])
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert (code, result["faults"]) == (0, []), captured.err
    assert result["bitwise_equal"]
    assert [incident["kind"] for incident in result["incidents"]] == ["move", "recovery"]
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == result
