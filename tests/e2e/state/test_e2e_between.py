"""Standbys become warm for what scripts do between a step and the next batch, and take over."""

from pathlib import Path

import pytest
from harness import Live, assert_equal_runs, run

pytestmark = pytest.mark.turns(12)

BETWEEN = str(Path(__file__).parents[1] / "scripts" / "between.py")


@pytest.mark.parametrize(
    "habit",
    [
        "average",
        "log",
        "evaluate",
        "rank-0-evaluates",
        "barrier",
        "by-hand",
        "stream",
        "range",
        "loops",
        "late",
    ],
)
def test_a_standby_takes_over(habit: str, undisturbed, tmp_path: Path) -> None:
    hurry = tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        await live.holding()
        live.signal_worker(live.job.seats[1])
        await live.incidents_done(1)
        hurry.touch()

    arguments = ["--habit", habit, "--steps", "60"]
    paced = [*arguments, "--pace", "0.08", "--hurry", str(hurry)]
    outcome = run(paced, scenario, machines=2, script=BETWEEN)
    assert not any("other steps than those recorded" in text for text in outcome.sentences)
    assert_equal_runs(outcome, undisturbed(arguments, machines=2, script=BETWEEN))


def test_a_step_before_the_first_fetch_is_refused() -> None:
    outcome = run(["--habit", "no-loader"], machines=2, standbys=0, script=BETWEEN)
    assert outcome.code == 1
    assert "before it has drawn a batch" in outcome.text
    assert "for step in job.range(1000)" in outcome.text


def test_a_collective_between_a_fetch_and_its_step_is_told_as_the_job_begins() -> None:
    outcome = run(["--habit", "before", "--steps", "8"], machines=2, standbys=0, script=BETWEEN)
    assert outcome.code == 0, outcome.text
    (told,) = [text for text in outcome.sentences if "between a fetch and its step" in text]
    line = 1 + Path(BETWEEN).read_text().splitlines().index(
        "            dist.all_reduce(torch.zeros(()))"
    )
    assert f"(between.py line {line})" in told


@pytest.mark.parametrize("point", ["compute", "gate"])
def test_an_aborted_step_behind_such_a_collective_takes_all_back(point: str, undisturbed) -> None:
    """Who runs the step again in place would not make it again, and who joins would. One whose
    ranks were all in its gate is not aborted."""

    async def scenario(live: Live) -> None:
        await live.incidents_done(1)

    arguments = ["--habit", "before", "--steps", "60"]
    drill = f"m2:{point}:40:kill"
    outcome = run([*arguments, "--pace", "0.05"], scenario, machines=2, drill=drill, script=BETWEEN)
    [incident] = outcome.job.incidents
    assert incident.rung == 2 or point == "gate", outcome.sentences
    assert_equal_runs(outcome, undisturbed(arguments, machines=2, script=BETWEEN))
