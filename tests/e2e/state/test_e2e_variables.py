"""What a script keeps in its own variables is never wrong in silence: a standby says so before it
is needed, and attributes of modules go with the rank."""

from pathlib import Path

import pytest
from harness import Live, assert_equal_runs, run

from trainmover.controller.state import Outcome

pytestmark = pytest.mark.turns(12)

SCRIPT = str(Path(__file__).parents[1] / "variables.py")


@pytest.mark.parametrize("keep", ["", "it", "calls", "passes", "norms", "tried"])
def test_what_is_reproduced_or_carried_is_never_refused(keep: str) -> None:
    """A move and then a loss: losses and final state are those of an undisturbed run."""

    async def scenario(live: Live) -> None:
        await live.holding()
        answer = await live.handle.move("m2")
        assert answer.ok, answer
        await live.holding()
        live.signal_worker("m1")
        await live.incidents_done(2)
        assert live.sandbox_failed == []
        await live.at_step(live.step() + 5)

    disturbed = run(
        ["--keep", keep], scenario, until_done=True, machines=2, standbys=2, script=SCRIPT
    )
    assert disturbed.code == 0, (disturbed.text, disturbed.sentences)
    assert [incident.outcome for incident in disturbed.job.incidents] == [Outcome.DONE] * 2
    calm = run(
        ["--keep", keep, "--steps", disturbed.steps, "--pace", "0"],
        machines=2, standbys=0, script=SCRIPT,
    )  # fmt: skip
    assert_equal_runs(disturbed, calm)


async def until_held_and_kept(live: Live, begins: Path) -> None:
    """A standby holds a run, and the variable has begun to change since."""
    await live.holding()
    begins.touch()
    await live.at_step(live.step() + 3)


def test_a_joiner_that_finds_a_variable_gives_the_move_up_and_the_leaver_stays(
    tmp_path: Path,
) -> None:
    begins = tmp_path / "begins"

    async def scenario(live: Live) -> None:
        await until_held_and_kept(live, begins)
        answer = await live.handle.move("m1")
        assert not answer.ok
        assert "code cannot be made" in answer.text
        await live.until(lambda: live.job.change is None)
        assert set(live.job.seats) == {"m1", "m2"}
        await live.at_step(live.step() + 5)

    outcome = run(
        ["--keep", "code", "--from", str(begins)],
        scenario, until_done=True, machines=2, standbys=1, script=SCRIPT,
    )  # fmt: skip
    assert outcome.code == 0, (outcome.text, outcome.sentences)


def test_a_recovery_that_finds_one_goes_back_to_a_snapshot(tmp_path: Path) -> None:
    begins = tmp_path / "begins"

    async def scenario(live: Live) -> None:
        await until_held_and_kept(live, begins)
        live.signal_worker("m1")
        await live.incidents_done(1)
        await live.at_step(live.step() + 5)

    keep = ["--keep", "code", "--from", str(begins)]
    disturbed = run(keep, scenario, until_done=True, machines=2, standbys=1, script=SCRIPT)
    incident = disturbed.job.incidents[-1]  # One behind a step's gate is overtaken by another.
    assert incident.rung == 2, disturbed.sentences
    steps = ["--steps", disturbed.steps, "--pace", "0"]
    assert_equal_runs(disturbed, run([*keep, *steps], machines=2, standbys=0, script=SCRIPT))
