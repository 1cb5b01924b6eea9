"""What ordinary training scripts do, under faults: the numbers of a calm run, or a refusal.

`scripts/habits.py` is the table, `scripts/arms.py` how each is run. Here each runs calm and with
one fault, the rarer ones by turns, at a place that follows from the commit; `scripts/campaign.py`,
which `make soak` runs, goes through all places, and compares with plain runs. A failure prints how
to have it again.
"""

import collections
import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import arms
import compose
from arms import Arm, Verdict, fault_of
from habits import BEST, FOLDER, HABITS, LATE, OWN_FLAG, Habit


def test_the_table_has_every_script() -> None:
    scripts = [f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.py")]
    assert sorted(habit.name for habit in [*HABITS, *LATE, BEST, OWN_FLAG]) == sorted(
        name for name in scripts if not name.endswith("/kit")
    )
    assert sum(not habit.rare for habit in HABITS) >= 60
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
        (arm(sentences=["protected: model"]), Verdict.EQUAL),
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
    calm = arm(sentences=["protected: model"])
    assert arms.verdict(Habit("after/averaged_loss"), seen, calm)[0] is verdict


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


@pytest.mark.turns(12)
def test_a_held_run_that_waits_until_all_agree_is_left_for_the_lost_rank() -> None:
    """While the standby makes a run of rank 0 to be held, rank 1 is lost."""
    (vote,) = (habit for habit in HABITS if habit.name == "loops/vote")
    found, why = arms.judge(vote, fault_of(vote, "2", arms.Place.COMPUTE))
    assert found is Verdict.EQUAL, why


EACH = [
    pytest.param(habit, id=str(habit), marks=[pytest.mark.turns(16)] if habit.rare else [])
    for habit in HABITS
]


@pytest.mark.parametrize("habit", EACH)
def test_calm_and_with_one_fault(habit: Habit, seed_of_commit: str) -> None:
    fault = fault_of(habit, seed_of_commit)
    calm = arms.calm(habit)
    if calm.code and habit.refused:
        assert any(f"{habit.path.name} line " in sentence for sentence in calm.sentences)
        return
    assert calm.code == 0, calm.sentences
    found, why = arms.judge(habit, fault, expected=calm)
    if not arms.as_promised(habit, found):
        again = f"python {arms.__file__} {habit} --place {fault.place} --seed {seed_of_commit}"
        pytest.fail(f"{habit}, {fault}: {found}\n{why}\n{habit.shows}\nagain: {again}")
