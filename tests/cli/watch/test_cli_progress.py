"""How far a run is: a line at the foot of a terminal, in a file now and then, and `top`."""

import io
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from simulated import played

from trainmover.cli.run.footer import TOLD_S, Footer
from trainmover.cli.watch import top
from trainmover.cli.watch.progress import left_s, line
from trainmover.controller.facts import Facts
from trainmover.controller.state import Job
from trainmover.errors import PeerLost
from trainmover.ids import Rank, Step
from trainmover.protocol import messages as m
from trainmover.server.length import length
from trainmover.server.view.progress import Progress
from trainmover.server.view.snapshot import snapshot


def job(*arguments: str, told: int = 0) -> Job:
    spec = m.JobSpec(run_id="r", argv=["train.py", *arguments])
    said = m.Recorded(
        rank=Rank(0), step=Step(3), trace="", digest="", bytes=1, length=told
    )  # fmt: skip
    return Job(spec=spec, recorded=Facts({Rank(0): said}))


def test_what_the_loops_say_goes_before_what_a_flag_says() -> None:
    assert length(job("--steps", "80", told=960)) == 960
    assert length(job("--steps", "80")) == 80
    assert length(job("--lr", "3")) is None


def test_a_length_that_was_not_true_is_not_shown() -> None:
    assert left_s(step=201, length=200, step_ms=10.0) is None
    assert line(201, 200, None, 10.0) == "step 201  10 ms/step"
    assert line(200, 200, None, 10.0) == "step 200 of 200 (100 %)  10 ms/step  0 ms left"


@pytest.mark.parametrize("columns", [20, 80, 200])
def test_a_line_fits_its_terminal(columns: int) -> None:
    assert len(line(5, 10**9, 1 / 3, 12.3, "recovering", columns)) < columns


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def footer(columns: int) -> tuple[Footer, io.StringIO, Clock]:
    to, clock = io.StringIO(), Clock()
    count = iter(range(1000))
    return Footer(to, columns, lambda _: f"line {next(count)}", clock), to, clock


def test_on_a_terminal_it_stays_below_what_is_said() -> None:
    foot, to, _ = footer(80)
    foot.look()
    with foot.aside():
        to.write("loss 2.5\n")
    foot.close()
    assert seen(to.getvalue()) == ["loss 2.5", ""]
    foot.look()
    assert seen(to.getvalue()) == ["loss 2.5", ""]


def seen(written: str) -> list[str]:
    """What a terminal shows in the end."""
    return [text.rpartition("\x1b[K")[2] for text in written.split("\n")]


def test_it_is_drawn_some_times_a_second_at_most() -> None:
    foot, to, clock = footer(80)
    for moment in range(100):
        clock.now = moment / 100
        foot.look()
    assert to.getvalue().count("line") == 5


def test_in_a_file_it_is_a_plain_line_a_minute() -> None:
    foot, to, clock = footer(0)
    for second in range(int(2.5 * TOLD_S)):
        clock.now = float(second)
        foot.look()
        with foot.aside():
            pass
    foot.close()
    assert to.getvalue() == "line 0\nline 1\n"


def status(step: int = 5, seed: int = 0) -> dict[str, Any]:
    """Of a job as the simulator has left it."""
    known = snapshot(played(seed).job, Progress(), {}, 10**9)
    return known | {"step": step, "length": 100, "journal": {"unwritten": 0}}


@pytest.mark.parametrize(("columns", "height"), [(80, 24), (40, 8), (200, 60)])
def test_a_frame_fits_the_terminal_and_is_drawn_over_the_one_before(
    columns: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = top.frame(status(), ["m1 was lost\nand more", "x" * 500], columns, height)
    assert drawn.count("\n") < height
    assert "step 5 of 100 (5 %)" in drawn
    monkeypatch.setattr("shutil.get_terminal_size", lambda: (columns, height))
    frames = top.Frames()
    assert not frames.frame(status(), []).startswith("\x1b[")
    rows = top.frame(status(), [], columns, height).count("\n")
    assert frames.frame(status(6), []).startswith(f"\x1b[{rows}F\x1b[J")


class FakeClient:
    """Gives one status after the other; then the run has ended."""

    def __init__(self, *given: dict[str, Any], pulses: Sequence[dict[str, Any]] = ()) -> None:
        self._given = list(given)
        self._pulses = pulses

    def pulses(self) -> Iterator[dict[str, Any]]:
        yield from self._pulses
        raise PeerLost("The run did not answer.", means="It has ended.", do="Nothing.")

    def status(self) -> dict[str, Any]:
        if not self._given:
            raise PeerLost("The run did not answer.", means="It has ended.", do="Nothing.")
        return self._given.pop(0)

    def events(self, after: int) -> list[dict[str, Any]]:
        return [{"seq": after + 1, "text": "m1 was lost"}]


def test_in_a_file_top_tells_what_is_new_until_the_run_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    client: Any = FakeClient(status(5), status(5), status(6))
    assert top.follow(client, 1.0) == 0
    out, err = capsys.readouterr()
    assert [text.split("  ")[0] for text in out.splitlines()] == [
        "step 5 of 100 (5 %)",
        "step 6 of 100 (6 %)",
    ]
    assert err.startswith("no contact with the run since ")
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("code", "because", "said"),
    [
        (0, "", "the run has ended: every rank ran its script to the end"),
        (1, "m1 was lost\nMore", "the run has ended with exit status 1: m1 was lost\nMore"),
    ],
)
def test_top_says_how_the_run_has_ended(
    code: int, because: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    going = {"over": False, "code": None, "ended_because": ""}
    client: Any = FakeClient(pulses=[going, {"over": True, "code": code, "ended_because": because}])
    assert top.follow(client, 1.0) == 0
    assert capsys.readouterr().err == f"{said}\n"
