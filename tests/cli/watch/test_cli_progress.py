"""How far a run is: a line at the foot of a terminal, in a file now and then, and `top`."""

import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from simulated import played

from trainmover.cli.plain import write_plainly
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


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("doing", ["", "recovering", "waiting for a machine, 55 s left"])
def test_the_time_left_or_what_it_does_is_never_cut_off(columns: int, doing: str) -> None:
    shown = line(50_112, 100_000, 1.334773, 1108.0, doing, columns, alarm="no standby")
    assert len(shown) < columns
    assert (doing or "15 h 21 min left") in shown


def machine(number: int, **changes: Any) -> dict[str, Any]:
    known = {
        "id": f"ip-10-0-1-{number}.eu-central-1.compute.internal", "state": "active",
        "ranks": [number], "step": 1000, "step_ms": 123.4, "last_seen_s": 0.1, "away": False,
        "cordoned": None, "note": "",
    }  # fmt: skip
    return known | changes


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_machines_with_cloud_names_are_told_apart_and_their_state_is_whole(columns: int) -> None:
    fan = {"reason": "its fan", "since_s": 1.0}
    machines = [machine(10), machine(11, state="warming", ranks=[], cordoned=fan)]
    drawn = plain(top.frame(status() | {"machines": machines}, [], columns, 30))
    first, second, *_ = (text for text in drawn.splitlines() if text.startswith("ip-"))
    assert first.split()[0] != second.split()[0]
    assert first.split()[1:3] == ["active", "10"]
    assert "warming" in second
    assert "cordoned: its fan" in " ".join(drawn.split())
    assert "\u2026 " not in first.partition("active")[2]


def test_of_many_machines_those_in_trouble_come_first_and_the_others_are_counted() -> None:
    machines = [machine(number) for number in range(200)]
    machines[150] |= {"away": True}
    machines[170] |= {"cordoned": {"reason": "", "since_s": 1.0}}
    drawn = plain(top.frame(status() | {"machines": machines}, ["m1 was lost"], 80, 24))
    rows = [text for text in drawn.splitlines() if text.startswith("ip-")]
    assert rows[0].startswith("ip-10-0-1-150")
    assert rows[1].startswith("ip-10-0-1-170")
    assert f"... {200 - len(rows)} more: {200 - len(rows)} active" in drawn
    assert "m1 was lost" in drawn
    assert drawn.count("\n") < 24


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


def plain(drawn: str) -> str:
    return re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", drawn)


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


@pytest.mark.parametrize("columns", [40, 80])
def test_that_the_next_loss_ends_the_job_stands_above_the_machines(columns: int) -> None:
    alarm = {"alarm": True, "text": "standbys 0 of 1 ready: the next loss ends the job"}
    drawn = top.frame(status() | {"redundancy": alarm}, [], columns, 12)
    assert "the next loss ends the job" in " ".join(plain(drawn).split())


def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    alarm = {"alarm": True, "text": "standbys 0 of 1 ready"}
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;33m" in top.frame(status() | {"redundancy": alarm}, [], 80, 24)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;33m" not in top.frame(status() | {"redundancy": alarm}, [], 80, 24)


def test_a_bar_is_drawn_in_every_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    to = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", to)
    write_plainly()
    print(line(50, 100, None, 10.0, columns=120), flush=True)
    assert to.buffer.getvalue().startswith(b"############------------ step 50 of 100")  # type: ignore[attr-defined]


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
