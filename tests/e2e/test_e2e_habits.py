"""What ordinary training scripts do, under faults: the numbers of a plain run, or a refusal.

`scripts/habits.py` is the table, `scripts/arms.py` how each is run. Here every habit meets one
fault; which, and where, follows from the commit, so that it is another one with the next. A failure
prints how to have it again. `make soak` goes through all places.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("scripts")))

import arms
from arms import Fault, Place, Verdict, fault_of
from habits import FOLDER, HABITS, Habit

SEED = "TRAINMOVER_HABITS_SEED"


def seed() -> str:
    """What the environment says, or the commit that is tested."""
    if given := os.environ.get(SEED):
        return given
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
    return done.stdout.strip() or "no commit"


def check(habit: Habit, fault: Fault) -> None:
    found, why = arms.judge(habit, fault)
    if arms.as_promised(habit, found):
        return
    again = f"{SEED}={seed()} python {arms.__file__} {habit} --place {fault.place}"
    calm = "" if found is not Verdict.SILENT else f"; calm: {arms.differs_calm(habit)}"
    pytest.fail(f"{habit}, {fault}: {found}{calm}\n{why}\n{habit.shows}\nagain: {again}")


def test_the_table_has_every_script() -> None:
    scripts = [f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.py")]
    assert sorted(habit.name for habit in HABITS) == sorted(
        name for name in scripts if not name.endswith("/kit")
    )
    assert len(HABITS) >= 60
    assert all(habit.shows for habit in HABITS)


@pytest.mark.parametrize("habit", HABITS, ids=str)
def test_one_fault(habit: Habit) -> None:
    print(f"{SEED}={seed()}")
    check(habit, fault_of(habit, seed()))


@pytest.mark.soak
@pytest.mark.parametrize("habit", HABITS, ids=str)
def test_no_fault(habit: Habit) -> None:
    """Nothing of the job is in the numbers of a run that nothing disturbs."""
    calm = arms.calm(habit)
    if habit.refused and calm.code:
        return
    assert calm.code == 0, calm.sentences
    difference = arms.differs(calm, arms.expected_of(habit)) if habit.alike else arms.parts(calm)
    assert not difference


@pytest.mark.soak
@pytest.mark.parametrize("place", Place)
@pytest.mark.parametrize("habit", HABITS, ids=str)
def test_every_place(habit: Habit, place: Place) -> None:
    check(habit, fault_of(habit, seed(), place))
