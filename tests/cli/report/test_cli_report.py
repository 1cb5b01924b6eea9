"""A report: numbers from events, and nothing that a terminal, program or browser cannot read."""

import asyncio
import json
import os
import sqlite3
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from simulated import played

from trainmover.cli.main import main
from trainmover.cli.report import text
from trainmover.cli.report.goodput import Goodput, RunPast, goodput
from trainmover.cli.report.page import page
from trainmover.cli.report.reading import family, past_of
from trainmover.cli.run.screen import JsonScreen, Screen
from trainmover.controller.events import MachineJoined
from trainmover.controller.state import Incident, Job, Kind, Outcome, Trigger
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.journal import Journal
from trainmover.journal.aside import keep_aside
from trainmover.journal.damage import check_of
from trainmover.launch.controller.hosting import RunResult
from trainmover.launch.runs import Run, begun_us, process_started
from trainmover.protocol import messages as m
from trainmover.server.view.causes import cause_of

SECOND = 1_000_000


def commits(*gaps_ms: float) -> tuple[list[int], list[int]]:
    """Steps and times; the first after one second."""
    at, times = SECOND, [SECOND]
    for gap in gaps_ms:
        at += round(gap * 1000)
        times.append(at)
    return list(range(1, len(times) + 1)), times


def incident(number: int = 1, **given: object) -> Incident:
    known: dict[str, object] = {
        "number": number, "kind": Kind.RECOVERY, "machine": MachineId("m1"),
        "joiner": MachineId("m3"), "ranks": (Rank(0),), "cause": "m1 was lost: gone", "rung": 1,
        "trigger": Trigger.LOST,
        "epoch": Epoch(2), "lost": (MachineId("m1"),), "outcome": Outcome.DONE,
        "marks": {"heard": SECOND, "detect": SECOND + 1000, "first_step": SECOND + 5000},
    }  # fmt: skip
    return Incident(**(known | given))  # type: ignore[arg-type]


def past(gaps_ms: list[float], *incidents: Incident, **given: object) -> RunPast:
    steps, at_us = commits(*gaps_ms)
    known: dict[str, object] = {"ended_us": at_us[-1], "run": "r", "machines": 2, "ranks": 2}
    known |= {"begun_us": 0, "incidents": incidents, "steps": steps, "at_us": at_us}
    return RunPast(**(known | given))  # type: ignore[arg-type]


def test_what_a_step_took_longer_is_lost_to_its_cause() -> None:
    lost = incident(step=Step(20), downtime_ms=400.0)
    account = goodput([past([100] * 19 + [500] + [100] * 20, lost)])
    assert account.lost_s == {"machine lost": pytest.approx(0.4)}
    assert account.training_s == pytest.approx(4.1)
    assert account.starting_s == pytest.approx(0.9)
    assert (account.steps, account.missing, account.redone) == (41, 0, 0)
    assert sum(account.parts.values()) == pytest.approx(account.whole_s)


def test_steps_made_again_are_of_the_same_loss() -> None:
    """All went back three steps: their first commits count, and the gap is behind the newest."""
    back = incident(step=Step(17), redone=3, rung=2, downtime_ms=200.0)
    account = goodput([past([100] * 19 + [600] + [100] * 9, back)])
    assert account.lost_s == {"machine lost": pytest.approx(0.5)}
    assert account.redone == 3


def test_two_incidents_before_one_step_are_not_counted_twice() -> None:
    first = incident(1, step=Step(20), outcome=Outcome.FAILED)
    then = incident(2, step=Step(20), trigger=Trigger.STUCK, lost=())
    account = goodput([past([100] * 19 + [900] + [100] * 9, first, then)])
    assert account.lost_s == {"machine lost": pytest.approx(0.8)}
    assert [one.cause for one in account.incidents] == ["machine lost", "rank stuck"]


def test_a_move_that_was_called_off_costs_nothing() -> None:
    off = incident(kind=Kind.MOVE, outcome=Outcome.CANCELLED, lost=(), cause="a move was asked for")
    assert goodput([past([100, 100, 400, 100], off)]).lost_s == {}


def test_the_end_of_a_job_that_a_loss_has_ended_is_lost_to_it() -> None:
    end = incident(step=Step(11), outcome=Outcome.FAILED)
    run = past([100] * 10, end, ended_us=60 * SECOND, over=True, code=1)
    account = goodput([run])
    assert account.lost_s == {"machine lost": pytest.approx(58.0)}
    assert account.ending_s == 0
    assert "ended with status 1" in "\n".join(text.lines(account))


def test_a_job_that_was_queued_again_is_one_account() -> None:
    """It stood for ten seconds, and went on from before its newest three steps."""
    first = past([100] * 9, ended_us=3 * SECOND, over=True, code=143)
    steps, at_us = commits(*[100] * 4)
    second = RunPast(
        "r2", 2, 2, begun_us=13 * SECOND, ended_us=15 * SECOND, resumed=7,
        steps=[step + 7 for step in steps], at_us=[at + 13 * SECOND for at in at_us],
    )  # fmt: skip
    account = goodput([first, second])
    assert account.runs == ["r", "r2"]
    assert (account.steps, account.step, account.redone) == (12, 12, 3)
    assert account.not_running_s == pytest.approx(10.0)
    assert account.made_again_s == pytest.approx(0.3)
    assert sum(account.parts.values()) == pytest.approx(account.whole_s)


def test_a_move_off_a_slow_machine_has_helped_and_another_one_has_not() -> None:
    moves = [
        incident(1, kind=Kind.MOVE, step=Step(20), lost=(), cause="a move was asked for"),
        incident(2, kind=Kind.MOVE, step=Step(40), lost=(), cause="a move was asked for"),
    ]
    account = goodput([past([200] * 19 + [300] + [100] * 19 + [150] + [100] * 20, *moves)])
    assert [(move.number, move.helped) for move in account.moves] == [(1, True), (2, False)]
    assert account.moves[0].saved_s == pytest.approx(2.0)
    assert "1 of 2" in "\n".join(text.lines(account))


def test_a_run_that_made_no_step_was_starting_all_along() -> None:
    account = goodput([RunPast("r", 2, 2, begun_us=0, ended_us=9 * SECOND)])
    assert account.parts == {"training": 0.0, "starting": 9.0}
    assert "goodput 0.0 %" in text.headline(account)


def test_numbers_that_were_never_committed_are_counted() -> None:
    run = past([100] * 9)
    torn = replace(run, steps=[*run.steps[:5], *[step + 2 for step in run.steps[5:]]])
    assert goodput([torn]).missing == 2


@pytest.mark.parametrize("seed", range(4))
def test_of_a_simulated_run_every_second_and_every_incident_has_its_place(seed: int) -> None:
    run = played(seed).past()
    account = goodput([run])
    assert sum(account.parts.values()) == pytest.approx(account.whole_s)
    assert all(seconds >= 0 for seconds in account.parts.values())
    assert {one.number for one in account.incidents} == {one.number for one in run.incidents}
    assert not [one.text for one in account.incidents if one.cause == "other"]
    assert account.missing == 0


def test_going_on_from_a_checkpoint_is_no_incident() -> None:
    resumed = incident(trigger=Trigger.RESUMED, lost=(), machine=None)
    assert cause_of(resumed) == ""
    assert goodput([past([100] * 5, resumed)]).incidents == []


@pytest.mark.parametrize("trigger", sorted(set(Trigger) - {Trigger.RESUMED}))
def test_a_change_is_counted_by_what_has_set_it_off(trigger: Trigger) -> None:
    """Whatever somebody, or a file that was opened, has put into its sentence."""
    told = "rank 1 on m2 raised OSError: roll 3: m3 was lost: the file"
    assert cause_of(incident(cause=told, trigger=trigger)) == str(trigger) != "other"


def many(count: int) -> Goodput:
    gaps = ([100.0] * 9 + [400.0]) * count
    return goodput(
        [
            past(
                gaps,
                *(
                    incident(
                        at + 1,
                        step=Step(10 * at + 10),
                        downtime_ms=20.0 + at,
                        kind=Kind.MOVE if at % 3 else Kind.RECOVERY,
                        cause="m1 was lost: <&>" if at % 3 == 0 else "a move was asked for",
                        lost=(MachineId("m1"),) if at % 3 == 0 else (),
                        marks={"heard": 10 * at * SECOND, "first_step": 10 * at * SECOND + 400},
                    )
                    for at in range(count)
                ),
            )
        ]
    )


class Page(HTMLParser):
    """What a browser would fetch, and what it would run."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.outside += [tag] if tag in ("script", "link", "img", "iframe") else []
        self.outside += [value for name, value in attrs if name in ("src", "href") and value]
        self.open += [] if tag == "meta" else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_the_page_stands_alone_and_its_plots_are_whole(count: int) -> None:
    written = page(many(count) if count else goodput([past([100] * 5)]), "made by a test")
    read = Page(written.removeprefix("<!doctype html>\n"))
    assert read.open == []
    assert read.outside == []
    assert "<&>" not in written
    plots = ["<svg" + rest.partition("</svg>")[0] + "</svg>" for rest in written.split("<svg")[1:]]
    assert len(plots) >= (4 if count > 4 else 2)
    for plot in plots:
        ElementTree.fromstring(plot)
    if count:
        assert plots[-2 if count == 1 else 0]
        assert written.count("<circle") == count
    assert len(written) < 2_000_000


def test_at_a_thousand_incidents_the_text_stays_a_page() -> None:
    assert len(list(text.lines(many(1000)))) < 40
    assert json.loads(json.dumps(text.as_json(many(1000))))["downtime_ms"]["all"]["count"] == 1000


def journal_at(path: Path, run: str, resumed: int = 0, launched_us: int = 0) -> None:
    """Of a run with steps 1 and 2; resumed: the first of them was told from a checkpoint."""
    found = m.Checkpoint(
        folder="", run_id="r", step=Step(resumed), epoch=Epoch(2), argv=[], module=False, script="",
        machines=1, nproc=1, torch="", trainmover="", python="", states={}, records={}, compiled={},
        recorded=[],
    )  # fmt: skip
    spec = m.JobSpec(run_id=run, argv=["train.py"], resume=found if resumed else None)
    with Journal.create(path, spec, launched_us=launched_us) as journal:
        joined = MachineJoined(
            at_us=1_000_000,
            machine=MachineId("m1"),
            standby=False,
            vault="",
            host="",
        )
        journal.append(joined)
        rows = [m.Row(step=Step(at), at_us=1_000_000 * at + 2_000_000, values={}) for at in (1, 2)]
        journal.append_rows(Rank(0), Epoch(1), rows)


def test_journals_of_the_runs_before_are_read_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.db"
    for run in ("first", "second", "third"):
        journal_at(path, run)
        if run != "third":
            assert keep_aside(path) is not None
    assert [one.name for one in family(path)] == ["run.db.1", "run.db.2", "run.db"]
    assert main(["report", "--journal", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == ["first", "second", "third"]


def test_the_start_counts_from_the_command(tmp_path: Path) -> None:
    journal_at(tmp_path / "run.db", "r", launched_us=200_000)
    account = goodput([past_of(tmp_path / "run.db")])
    assert (account.whole_s, account.starting_s) == pytest.approx((3.8, 1.8))
    journal_at(tmp_path / "late.db", "r", launched_us=9_000_000)  # Somebody has put the clock back.
    assert goodput([past_of(tmp_path / "late.db")]).whole_s == pytest.approx(3.0)
    age_us = time.time_ns() // 1000 - begun_us(process_started(os.getpid()) or 0)
    assert 0 < age_us < 86_400_000_000


def test_steps_that_are_told_from_a_checkpoint_are_those_of_the_run_before(tmp_path: Path) -> None:
    for run in (0, 1):
        path = tmp_path / f"run.db.{run}"
        journal_at(path, f"r{run}", resumed=run)
    assert past_of(path).steps.tolist() == [2]  # type: ignore[attr-defined]
    account = goodput([past_of(tmp_path / "run.db.0"), past_of(path)])
    assert (account.steps, account.redone, account.missing) == (2, 1, 0)


def test_a_journal_that_grows_meanwhile_is_read_as_far_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_at(tmp_path / "run.db", "live")
    entries = Journal.entries

    def grows(journal: Journal, after: int = 0, until: int = 2**63 - 1) -> Any:
        with sqlite3.connect(tmp_path / "run.db") as db:
            (seq,) = db.execute("SELECT max(seq) + 1 FROM events").fetchone()
            text = json.dumps(f"note {seq}")
            check = check_of(seq, 5_000_000, "Note", text)
            row = (seq, 5_000_000, "Note", text, check)
            db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", row)
        return entries(journal, after, until)

    monkeypatch.setattr(Journal, "entries", grows)
    assert goodput([past_of(tmp_path / "run.db")]).steps == 2


def test_a_page_is_written_beside_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal_at(tmp_path / "run.db", "only")
    written = tmp_path / "report.html"
    argv = ["report", "--journal", str(tmp_path / "run.db"), "--out"]
    assert main([*argv, str(written)]) == 0
    assert "run only: 1 machine, 1 rank, not ended" in capsys.readouterr().out
    assert written.read_text().startswith("<!doctype html>")
    assert main([*argv, str(written.with_suffix(".json"))]) == 0
    assert json.loads(written.with_suffix(".json").read_text())["steps"] == 2


@pytest.mark.parametrize(
    ("name", "says"), [("report.pdf", "does not say how"), ("no/r.html", "could not be written")]
)
def test_a_place_that_cannot_be_written_is_said(
    name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal_at(tmp_path / "run.db", "only")
    argv = ["report", "--journal", str(tmp_path / "run.db"), "-o", str(tmp_path / name)]
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.splitlines()) == 3


@pytest.mark.parametrize("screen", [Screen, JsonScreen])
def test_a_run_says_at_its_end_what_it_was_worth_and_leaves_the_report_it_was_asked_for(
    screen: type[Screen], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    journal_at(tmp_path / "run.db", "only")
    run = Run(
        run_id="only", api_url="", host="", pid=1, started=0, directory="", token_file="",
        journal=str(tmp_path / "run.db"), report=str(tmp_path / "report.txt"),
    )  # fmt: skip
    job = Job(spec=m.JobSpec(run_id="only", argv=["train.py"]), epoch=Epoch(1), code=0)
    handle: Any = SimpleNamespace(run=run, server=None)

    async def show() -> None:
        shown = screen()
        shown.ready(handle, True)
        await shown.ended(RunResult(0, "", job, "only", None))

    asyncio.run(show())
    out, err = capfd.readouterr()
    if screen is JsonScreen:
        assert json.loads(out)["goodput"] == pytest.approx(2 / 3)
    else:
        assert err == "goodput 66.7 %: 2 steps in 3.0 s, no incident\n"
    assert "none lost" in (tmp_path / "report.txt").read_text()


def test_no_journal_is_said_in_three_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--journal", str(tmp_path / "none.db")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3
