"""Every training habit of `tests/e2e/scripts`, without a rule for it: are its steps made again?

Each is run as rank 0 of one, restored in place, and taken over by a second process.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.scripts.habits import HABITS, LATE, Habit

NOT_EQUAL = {
    "between/new_groups": "it needs several ranks",
    "between/new_pairs": "it needs several ranks",
    "between/objects_drawn_ahead": "it needs several ranks",
    "data/hardest_by_pass": "in place, a generator that has ended would have to begin anew",
    "layouts/pipeline": "it needs several ranks",
    "layouts/tensor": "it needs several ranks",
    "loops/drawn_inside": "job.batches refuses to be asked within a step",
    "loops/summed": "it has no loop: sum() and map() go through the batches, in C",
    "meters/averaged_with_time": "it keeps a time in a tensor",
    "updates/chosen_by_set": "it depends on addresses: two plain runs of it differ",
    "variables/best_saved": "it keeps the path of a temporary folder, which is gone",
    "variables/rule_compiled": "it compiles texts that change, and code is not carried",
}
"""Habits that this check cannot show to be equal, and why."""
BY_CHANCE = {"updates/chosen_by_set"}
"""Of these, habits that are equal where addresses happen to be in one order."""

ROOT = Path(__file__).parents[2]
AT_ONCE = 8
PARTS = [(HABITS + LATE)[at : at + AT_ONCE] for at in range(0, len(HABITS + LATE), AT_ONCE)]


def checked(habits: list[Habit]) -> list[dict[str, Any]]:
    """Results of some habits."""
    words: list[str] = []
    for habit in habits:
        words += [*(["--"] if words else []), str(habit.path), "--steps", str(habit.steps)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.check.forked", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def why_not_equal(result: dict[str, Any] | None) -> str:
    """What is wrong with a process's result, in a few words; "" if nothing is."""
    if result is None:
        return "left no result"
    if why := result["error"] or result["missing"]:
        return str(why)
    if result["losses"] != result["repeated"]:
        return f"losses differ; {result['notes'][:1] or 'nothing was noted'}"
    if result["missed"]:
        return f"not found by a look: {result['missed'][0]}"
    return f"{result['differences'][0]}" if result["differences"] else ""


@pytest.mark.long
@pytest.mark.turns(16)
@pytest.mark.parametrize("habits", PARTS, ids=lambda habits: habits[0].name)
def test_habits_are_carried_whole(habits: list[Habit]) -> None:
    found: dict[str, str] = {}
    for habit, result in zip(habits, checked(habits), strict=True):
        for role in ("run", "standby"):
            if why := why_not_equal(result[role]):
                found.setdefault(habit.name, f"{role}: {why}")
    known = NOT_EQUAL.keys() & {habit.name for habit in habits}
    assert {name: why for name, why in found.items() if name not in known} == {}
    assert known - BY_CHANCE <= found.keys(), "these are equal now: take them off the list"
