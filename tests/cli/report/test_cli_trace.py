"""A trace: every process on one time axis, in a file that Perfetto reads."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from simulated import Played, played
from trace_format import faults

from trainmover.cli.main import main
from trainmover.cli.report.chrome import clipped, lanes, trace
from trainmover.cli.report.lanes import drawing
from trainmover.cli.report.timeline import Clocks, Span, Timeline, Track, step_spans
from trainmover.controller.state import Kind, Outcome
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.journal import CommittedRow, Journal
from trainmover.protocol import messages as m

SEEDS_MAX = 40
LANE = Track("m1", "worker 0")


def line_of(run: Played) -> Timeline:
    return Timeline.of(run.disk.spec, run.events)


def run_with(kind: Kind) -> tuple[Timeline, int]:
    """The first that has one which came to its end, and its number."""
    for line in (line_of(played(seed)) for seed in range(SEEDS_MAX)):
        for one in line.incidents:
            if one.kind is kind and one.outcome is Outcome.DONE and one.rung < 2:
                return line, one.number
    raise AssertionError(f"no {kind} in {SEEDS_MAX} seeds")


def part_of(line: Timeline, number: int) -> Timeline:
    return clipped(line, *line.stretch(line.incidents[number - 1]))


@pytest.mark.parametrize("seed", range(6))
def test_a_simulated_run_makes_a_trace_without_a_fault(seed: int) -> None:
    line = line_of(played(seed))
    assert faults(json.loads(json.dumps(trace(line)))) == []
    for incident in line.incidents:
        assert faults(trace(part_of(line, incident.number))) == []


def test_of_a_recovery_every_order_leads_to_what_was_done_on_it() -> None:
    part = part_of(*run_with(Kind.RECOVERY))
    done_by: dict[str, set[str]] = {}
    for span in part.spans:
        if span.track.lane.startswith("worker"):
            done_by.setdefault(span.name, set()).add(span.track.process)
    seats = set(part.job.seats)
    assert {"drain", "switchover", "first step"} <= done_by.keys()
    assert len(done_by["first step"]) == len(seats)
    arrows = {(flow.track, flow.to_us) for flow in part.flows}
    first = [span for span in part.spans if span.name == "first step"]
    assert {(s.track, s.to_us) for s in first if s.track.process != "controller"} <= arrows


def test_phases_of_an_incident_are_those_that_it_is_told_with() -> None:
    line, number = run_with(Kind.RECOVERY)
    incident = line.incidents[number - 1]
    of = [span for span in line.spans if span.track == Track("controller", "incidents")]
    (whole,) = (span for span in of if span.name.startswith(f"#{incident.number} "))
    inside = [s for s in of if whole.from_us <= s.from_us < whole.to_us and s is not whole]
    told = {name.replace("_", " "): ms for name, ms in incident.phases_ms.items() if ms}
    drawn = {(s.name, (s.to_us - s.from_us) / 1e3) for s in inside}
    assert told
    assert set(told.items()) <= drawn


def test_spans_that_cross_get_a_lane_of_their_own() -> None:
    times = {"a": (0, 10), "b": (2, 8), "c": (5, 12), "d": (10, 11), "e": (12, 13)}
    spans = [Span(LANE, name, *at) for name, at in times.items()]
    assert [[one.name for one in row] for row in lanes(spans)[LANE]] == [
        ["a", "b", "d", "e"],
        ["c"],
    ]


@pytest.mark.parametrize(
    ("least", "most", "behind"), [(-5, 5, 0), (100, 200, 100), (-200, -100, -100)]
)
def test_a_clock_is_moved_as_little_as_makes_sense(least: int, most: int, behind: int) -> None:
    clocks = Clocks()
    clocks.not_before("h", at_host=1000, here=1000 + least)
    clocks.not_before("h", at_host=5000, here=4000 + least)
    clocks.not_after("h", at_host=1000, here=1000 + most)
    assert clocks.behind_us("h") == behind
    assert clocks.behind_us("another") == 0


def test_steps_are_drawn_on_whoever_had_the_rank() -> None:
    """What is told from a record, when the machine that made it is lost, is that one's."""
    line = Timeline(m.JobSpec(run_id="r", argv=["train.py"]))
    line.memberships = [(0, (MachineId("m1"),)), (100, (MachineId("m2"),))]
    line.seats = {Epoch(1): (MachineId("m1"),), Epoch(2): (MachineId("m2"),)}
    rows = [
        CommittedRow(Rank(0), Step(step), Epoch(2), at, {})
        for step, at in ((1, 50), (2, 80), (3, 150), (4, 190))
    ]
    spans = list(step_spans(line, rows))
    assert [(s.track.process, s.name, s.from_us, s.to_us) for s in spans] == [
        ("m1", "step 2", 50, 80),
        ("m2", "step 3", 100, 150),
        ("m2", "step 4", 150, 190),
    ]


def test_a_picture_of_it_is_whole() -> None:
    drawn = drawing(part_of(*run_with(Kind.MOVE)))
    words = "".join(ElementTree.fromstring(drawn).itertext())
    assert "controller" in words
    assert "pause" in words


@pytest.fixture
def journal(tmp_path: Path) -> str:
    run = played(0)
    with Journal.create(tmp_path / "run.db", run.disk.spec) as journal:
        for event in run.events:
            journal.append(event)
    return str(tmp_path / "run.db")


def test_the_command_writes_one_incident_or_the_whole_run(
    journal: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes: list[int] = []
    for more in (["1"], ["--whole"]):
        out = tmp_path / "trace.json"
        assert main(["trace", *more, "--journal", journal, "-o", str(out)]) == 0
        assert "perfetto" in capsys.readouterr().out
        written: dict[str, Any] = json.loads(out.read_text())
        assert faults(written) == []
        sizes.append(len(written["traceEvents"]))
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["999"], "There is no incident 999"),
        (["1", "--whole"], "contradict each other"),
        (["1", "-o", "/nowhere/at/all.json"], "could not be written"),
    ],
)
def test_what_cannot_be_is_said_in_three_lines(
    argv: list[str], says: str, journal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", *argv, "--journal", journal]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.splitlines()) == 3


def test_a_file_that_the_user_has_not_named_is_not_written_over(
    journal: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.json").write_text("precious")
    assert main(["trace", "--whole", "--journal", journal]) == 2
    assert "run.json exists already" in capsys.readouterr().err
    assert Path("run.json").read_text() == "precious"
    assert main(["trace", "1", "--journal", journal]) == 0
    assert Path("incident-1.json").exists()
