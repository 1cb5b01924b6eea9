"""What ordinary training scripts do, under faults: the numbers of a plain run, or a refusal.

`scripts/habits.py` is the table, `scripts/arms.py` how each is run. Here every sixth habit meets
one fault, the others do in `make soak`; which, and where, follows from a seed. A failure prints how
to have it again. `make soak` goes through all places.
"""

import collections
import dataclasses
import os
import random
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).with_name("scripts")))

import arms
import combinations
import compose
from arms import Arm, Fault, Place, Verdict, fault_of
from habits import FOLDER, HABITS, Habit

SEED = "TRAINMOVER_HABITS_SEED"
FIRST = "d712c3720caf"
"""Until every habit was seen at every place (`make soak`), each commit has this one's faults."""


@cache
def seed() -> str:
    """What the environment says."""
    return os.environ.get(SEED) or FIRST


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


ROWS = {(rank, step): {"loss": 1.0 * step} for rank in (0, 1) for step in (1, 2)}


def arm(**others: Any) -> Arm:
    end = Arm(0, dict(ROWS), {0: "a", 1: "b"}, ["said: 1"], ready=True, incidents=1)
    return dataclasses.replace(end, **others)


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (arm(), Verdict.EQUAL),
        (arm(rows=ROWS | {(1, 2): {"loss": 2.5}}), Verdict.SILENT),
        (arm(rows=ROWS | {(1, 3): {"loss": 3.0}}), Verdict.SILENT),
        (arm(digests={0: "a", 1: "c"}), Verdict.SILENT),
        (arm(printed=["said: 2"]), Verdict.SILENT),
        (arm(code=1, sentences=["averaged_loss.py line 7 is at fault"]), Verdict.LATE),
        (arm(code=1, told=["averaged_loss.py line 7 is at fault"]), Verdict.REFUSED),
        (arm(code=1), Verdict.ENDED),
        (arm(code=98), Verdict.STUCK),
        (arm(sentences=["Silent corruption: bits have changed"]), Verdict.ACCUSED),
        (arm(ready=False), Verdict.ALONE),
        (arm(incidents=0), Verdict.SPARED),
    ],
)
def test_what_came_of_it_has_one_name(seen: Arm, verdict: Verdict) -> None:
    assert arms.verdict(Habit("after/averaged_loss"), seen, arm())[0] is verdict


def test_a_seed_composes_one_script_and_seeds_use_every_part() -> None:
    used = collections.defaultdict(set)
    for number in range(300):
        composed = compose.compose(number)
        compile(composed.source, "composed", "exec")
        assert composed == compose.compose(number)
        for place, part in composed.parts.items():
            used[place].add(part)
    assert used["between"] == set(compose.BETWEEN)
    assert used["after"] == set(compose.AFTER)
    assert used["loop"] == set(compose.LOOPS)
    assert used["model"] == set(compose.MODELS)


@pytest.mark.parametrize("habit", [habit for habit in HABITS if habit.quick], ids=str)
def test_one_fault(habit: Habit) -> None:
    print(f"{SEED}={seed()}")
    check(habit, fault_of(habit, seed()))


@pytest.mark.soak
@pytest.mark.parametrize("number", range(4))
def test_a_script_made_by_chance(number: int) -> None:
    """The campaign of hundreds of them is `combinations.py`, which `make soak` runs."""
    one = random.Random(f"{seed()} {number}").randrange(10**6)
    line = combinations.run_seed(one)
    again = f"again: python {combinations.__file__} --seeds {one}"
    assert line["verdict"] == Verdict.EQUAL.name, f"{line}\n{again}"


@pytest.mark.soak
@pytest.mark.parametrize("habit", [habit for habit in HABITS if not habit.quick], ids=str)
def test_one_fault_of_the_others(habit: Habit) -> None:
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
