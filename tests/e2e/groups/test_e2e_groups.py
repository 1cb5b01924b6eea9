"""Groups that a script makes while it trains survive moves and losses, or the job says they do not.

A joiner has made other groups than the ranks that stayed: those of its shadow run, and none of the
steps it passes over.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import arms
from habits import HABITS
from harness import Live, Outcomes, assert_equal_runs, run

from trainmover.controller.state import Outcome

pytestmark = pytest.mark.turns(12)

SCRIPT = str(Path(__file__).parents[1] / "scripts" / "groups_made.py")
STEPS = 120


def disturbed(when: str, folder: Path) -> Outcomes:
    """Rank 0 is moved, then the process of rank 1 dies; each a while after the first steps."""
    hurry = folder / "hurry"

    async def scenario(live: Live) -> None:
        await live.warm(2)
        await live.at_step(max(12, live.step() + 1))
        await live.handle.move("m1")
        await live.incidents_done(1)
        await live.at_step(live.step() + 3)
        live.signal_worker("m2")
        await live.incidents_done(2)
        hurry.touch()

    arguments = ["--when", when, "--steps", str(STEPS), "--pace", "0.25", "--hurry", str(hurry)]
    return run(arguments, scenario, machines=3, standbys=2, script=SCRIPT)


def calm(when: str, *more: str, steps: int = STEPS) -> Outcomes:
    arguments = ["--when", when, "--steps", str(steps), "--pace", "0", *more]
    return run(arguments, machines=3, standbys=0, script=SCRIPT)


@pytest.mark.parametrize("when", ["step", "pass"])
def test_groups_made_while_training_go_with_the_ranks(when: str, tmp_path: Path) -> None:
    outcome = disturbed(when, tmp_path)
    assert [i.outcome for i in outcome.job.incidents] == [Outcome.DONE] * 2, outcome.sentences
    assert_equal_runs(outcome, calm(when))


def test_a_group_that_a_step_makes_and_keeps_goes_with_the_ranks(tmp_path: Path) -> None:
    """It lies in a dict of the script's, and whoever takes a rank has not run the line."""
    go, hurry = tmp_path / "go", tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        await live.holding()
        go.touch()
        await live.at_step(live.step() + 6)
        assert (await live.handle.move("m1")).ok
        await live.holding()
        live.signal_worker("m2")
        await live.incidents_done(2)
        hurry.touch()

    arguments = ["--when", "lazy", "--steps", "200", "--rows", "800"]
    files = ["--pace", "0.2", "--go", str(go), "--hurry", str(hurry)]
    outcome = run([*arguments, *files], scenario, machines=3, standbys=2, script=SCRIPT)
    assert [i.outcome for i in outcome.job.incidents] == [Outcome.DONE] * 2, outcome.sentences
    assert_equal_runs(outcome, calm("lazy", "--rows", "800", steps=200))


@pytest.mark.parametrize("name", ["between/new_groups", "between/new_pairs"])
def test_a_group_that_a_variable_holds_survives_one_incident_after_another(name: str) -> None:
    """The second takes the machine that took the rank before; both are given groups."""
    [habit] = [habit for habit in HABITS if habit.name == name]
    slot = habit.machines - 1
    faults = arms.Fault(arms.Place.GATE, slot, 9), arms.Fault(None, slot, 20, delay_s=0.05)
    assert arms.judge(habit, *faults) == (arms.Verdict.EQUAL, "")


@pytest.mark.parametrize("slot", [0, 2])
def test_a_rank_is_lost_as_groups_are_made_first_and_its_source_is_in_none(slot: int) -> None:
    """The others have made theirs meanwhile: what a group is to them it need not be to the rank."""
    [habit] = [habit for habit in HABITS if habit.name == "between/new_pairs"]
    fault = arms.Fault(arms.Place.PASSED, slot, 5)
    assert arms.judge(habit, fault) == (arms.Verdict.EQUAL, "")
