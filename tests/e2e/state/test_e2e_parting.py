"""Scripts that let replicas part: nobody takes another rank's state for a lost one's, nobody is
accused, and nothing is lost where snapshots are kept."""

from pathlib import Path

import pytest
from harness import Live, Outcomes, assert_equal_runs, run

pytestmark = pytest.mark.turns(12)

PARTING = str(Path(__file__).parents[1] / "scripts" / "parting.py")
ARGUMENTS = ["--steps", "60"]


def lost_at(step: int, tmp_path: Path, *, seat: int = 1, habit: str = "local", **options: object):
    """The rank of a seat is lost once so many steps are committed."""
    hurry = tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        await live.holding()
        await live.at_step(step)
        live.signal_worker(live.job.seats[seat])
        await live.until(lambda: bool(live.job.incidents))
        hurry.touch()

    arguments = [*ARGUMENTS, "--habit", habit]
    if step < 30:
        arguments += ["--pace", "0.4", "--hurry", str(hurry)]
    else:
        arguments += ["--pace", "0.1", "--hurry", str(hurry)]
    return run(arguments, scenario, script=PARTING, **options)  # type: ignore[arg-type]


def said(outcome: Outcomes, words: str) -> bool:
    return any(words in sentence for sentence in outcome.sentences)


@pytest.mark.parametrize(("habit", "seat"), [("local", 1), ("average", 0)])
def test_a_gate_sees_it_between_two_rounds_and_snapshots_begin_at_once(
    habit: str, seat: int, tmp_path: Path, undisturbed
) -> None:
    """Of rounds that come by themselves the next one would be behind step 30."""
    outcome = lost_at(20, tmp_path, seat=seat, habit=habit)
    assert outcome.code == 0, (outcome.text, outcome.sentences)
    assert outcome.job.incidents[-1].rung == 2
    assert said(outcome, "No alarm if the script trains ranks apart") or said(outcome, "no alarm")
    assert not said(outcome, "orruption")
    arguments = [*ARGUMENTS, "--habit", habit]
    assert_equal_runs(outcome, undisturbed(arguments, machines=3, script=PARTING))


def test_without_snapshots_nobody_is_believed_and_the_job_says_why() -> None:
    """Of a loss in a step; one behind a gate has the script begin anew."""
    arguments = [*ARGUMENTS, "--pace", "0.05"]
    outcome = run(arguments, script=PARTING, drill="m2:compute:21:kill", snapshot_every=0)
    assert outcome.code == 1
    assert "no other rank holds the state of rank 1" in outcome.text
    assert "snapshots were turned off (--snapshots)" in outcome.text
    assert not said(outcome, "orruption")


def test_with_snapshots_all_go_back_and_nothing_differs(tmp_path: Path, undisturbed) -> None:
    outcome = lost_at(20, tmp_path, snapshot_every=4)
    assert outcome.code == 0, (outcome.text, outcome.sentences)
    assert outcome.job.incidents[-1].rung == 2
    assert_equal_runs(outcome, undisturbed(ARGUMENTS, machines=3, script=PARTING))


@pytest.mark.parametrize(("habit", "seat"), [("local", 1), ("average", 0)])
def test_a_round_that_sees_it_tells_so_once_and_snapshots_begin(
    habit: str, seat: int, tmp_path: Path, undisturbed
) -> None:
    outcome = lost_at(38, tmp_path, seat=seat, habit=habit)
    assert outcome.code == 0, (outcome.text, outcome.sentences)
    assert said(outcome, "No alarm if the script trains ranks apart")
    assert not said(outcome, "orruption")
    arguments = [*ARGUMENTS, "--habit", habit]
    assert_equal_runs(outcome, undisturbed(arguments, machines=3, script=PARTING))


def test_what_one_rank_alone_does_shows_in_its_last_sample(tmp_path: Path, undisturbed) -> None:
    """The others agree with each other: only the lost rank's own word tells if no round does. All
    ranks go back to a snapshot, in which it has its own state."""
    outcome = lost_at(26, tmp_path, seat=0, habit="average", fingerprint_every=0)
    assert outcome.job.incidents[-1].rung == 2, outcome.sentences
    arguments = [*ARGUMENTS, "--habit", "average"]
    assert_equal_runs(outcome, undisturbed(arguments, machines=3, script=PARTING))
