"""What a script begins to do late, in its tenth step, and a rank that is lost in that very step or
the next: equal, or the job says why not. Never other numbers."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("scripts")))

import arms
from arms import Fault, Place, Verdict
from habits import BEST, HABITS, LATE, Habit

TOLD = {Verdict.EQUAL, Verdict.REFUSED, Verdict.LATE}
SAID = "for the first time"
PLACES = [Place.COMPUTE, Place.GATE, Place.PASSED, Place.BETWEEN]


def comes_to(habit: Habit, step: int, place: Place) -> None:
    """step: the one in which rank 0 is lost, or behind which."""
    fault = Fault(place, 0, step - 2)
    found, why = arms.judge(habit, fault, expected=arms.calm(habit))
    assert found in TOLD or (found is Verdict.ENDED and SAID in why), f"{found}\n{why}"


@pytest.mark.turns(24)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("step", [10, 11])
@pytest.mark.parametrize("habit", LATE, ids=str)
def test_what_begins_late_is_never_silently_lost(habit: Habit, step: int, place: Place) -> None:
    comes_to(habit, step, place)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("step", "place"), [(10, Place.BETWEEN), (11, Place.GATE), (11, Place.PASSED)]
)
def test_what_one_rank_alone_begins_late_is_not_lost_once_the_step_has_returned(
    step: int, place: Place
) -> None:
    comes_to(BEST, step, place)


@pytest.mark.turns(2)
@pytest.mark.parametrize("step", [15, 30])
@pytest.mark.parametrize("slot", [0, 1])
def test_lines_between_two_passes_are_run_once(step: int, slot: int) -> None:
    """A rank is lost behind the gate of a pass's last step: its source has run them already."""
    [habit] = [one for one in HABITS if one.name == "between/passes"]
    found, why = arms.judge(habit, Fault(Place.PASSED, slot, step - 2))
    assert found is Verdict.EQUAL, why
