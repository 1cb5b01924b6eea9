"""What a script begins to do late, in its tenth step, and a rank that is lost in that very step or
the next: equal, or the job says why not. Never other numbers."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import arms
from arms import Fault, Place, Verdict
from habits import BEST, HABITS, LATE, OWN_FLAG, Habit

TOLD = {Verdict.EQUAL, Verdict.REFUSED, Verdict.LATE}
SAID = "for the first time"
PLACES = [Place.COMPUTE, Place.GATE, Place.PASSED, Place.BETWEEN]


def comes_to(habit: Habit, step: int, place: Place) -> None:
    """step: the one in which rank 0 is lost, or behind which."""
    fault = Fault(place, 0, step - 2)
    found, why = arms.judge(habit, fault, expected=arms.calm(habit))
    assert found in TOLD or (found is Verdict.ENDED and SAID in why), f"{found}\n{why}"


@pytest.mark.turns(48)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("step", [10, 11])
@pytest.mark.parametrize("habit", LATE, ids=str)
def test_what_begins_late_is_never_silently_lost(habit: Habit, step: int, place: Place) -> None:
    comes_to(habit, step, place)


@pytest.mark.turns(12)
@pytest.mark.parametrize(
    ("step", "place"), [(10, Place.BETWEEN), (11, Place.GATE), (11, Place.PASSED)]
)
def test_what_one_rank_alone_begins_late_is_not_lost_once_the_step_has_returned(
    step: int, place: Place
) -> None:
    comes_to(BEST, step, place)


class Alone(Fault):
    """The worker dies, and its machine takes the rank itself, whatever standbys had to say."""

    def drill(self, habit: Habit) -> str:
        return super().drill(habit).replace("kill", "crash")


@pytest.mark.turns(3)
@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("step", range(18, 24))
def test_a_flag_of_each_rank_s_own_is_not_believed_for_its_equal(step: int, slot: int) -> None:
    """At some of these steps it is the same on both ranks before the step, and behind it not."""
    found, why = arms.judge(OWN_FLAG, Alone(Place.GATE, slot, step))
    assert found in TOLD, f"{found}\n{why}"


class Later(Fault):
    """The rank is late first: the others go on as far as they get without it, before it is lost."""

    def drill(self, habit: Habit) -> str:
        """Where it dies it waits first."""
        kill = super().drill(habit)
        return f"{kill.removesuffix('kill')}sleep=0.4,{kill}"


@pytest.mark.turns(12)
@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    ("place", "fault"),
    [(Place.GATE, Fault), (Place.PASSED, Fault), (Place.PASSED, Later), (Place.BETWEEN, Fault)],
)
@pytest.mark.parametrize(("name", "steps"), [("passes", 15), ("passes_inside", 13)])
def test_lines_between_two_passes_are_run_once(
    name: str, steps: int, place: Place, fault: type[Fault], number: int, slot: int
) -> None:
    """A rank is lost behind the gate of a pass's last step, or in those lines: its source has run
    them already, or stands before them. number: of the pass"""
    [habit] = [one for one in HABITS if one.name == f"between/{name}"]
    found, why = arms.judge(habit, fault(place, slot, number * steps - 2))
    assert found is Verdict.EQUAL, f"{found}\n{why}"
