"""Deadlines on made-up step times: long enough for all that happens, short for steady steps."""

import random
from collections.abc import Callable

import pytest

from trainmover.worker.watch.deadline import BEFORE_S, FLOOR_S, STEPS_MIN, Deadline

Steps = Callable[[random.Random], float]
RANKS = 4
HALF_AN_HOUR_S = 1800.0
TIMES_5: dict[str, Steps] = {
    "any": lambda chance: 5.0 ** chance.random(),
    "even": lambda chance: 1.0 + 4.0 * chance.random(),
    "two kinds": lambda chance: 5.0 if chance.random() < 0.5 else 1.0,
    "some long": lambda chance: 5.0 if chance.random() < 0.1 else 1.0,
    "few long": lambda chance: 5.0 if chance.random() < 0.02 else 1.0,
    "log-normal": lambda chance: min(5.0, max(1.0, chance.lognormvariate(0.7, 0.5))),
    "heavy tail": lambda chance: min(5.0, chance.paretovariate(1.5)),
}


def false_alarms(
    steps: Steps, typical_s: float, seed: int, *, stall_s: float = 0.0, evaluation_s: float = 0.0
) -> int:
    """Half an hour of a job whose ranks meet at the end of every step.

    An alarm: a rank is behind for longer than its deadline, and another has waited so long for it.
    Every 200th step rank 0 stalls; every 1500th it evaluates, and says so beforehand.
    """
    chance = random.Random(seed)
    deadlines = [Deadline(1.0) for _ in range(RANKS)]
    at_s, number, alarms = 0.0, 0, 0
    while at_s < HALF_AN_HOUR_S:
        number += 1
        took = [typical_s * steps(chance) for _ in range(RANKS)]
        took[0] += stall_s * (number % 200 == 20)
        slowest = max(took)
        waits = [slowest - own > line.seconds for own, line in zip(took, deadlines, strict=True)]
        blamed = deadlines[took.index(slowest)].seconds
        alarms += slowest > blamed and any(waits)
        whole_s = slowest + evaluation_s * (number % 1500 == 0)
        at_s += whole_s
        for rank, line in enumerate(deadlines):
            if whole_s == slowest and not waits[rank]:
                line.learn(slowest)
    return alarms


@pytest.mark.parametrize("typical_s", [0.05, 0.7, 3.0])
@pytest.mark.parametrize("kind", TIMES_5)
def test_steps_that_vary_five_times_raise_no_alarm_in_half_an_hour(
    kind: str, typical_s: float
) -> None:
    alarms = [false_alarms(TIMES_5[kind], typical_s, seed, evaluation_s=20) for seed in range(2)]
    assert alarms == [0, 0]


@pytest.mark.parametrize("typical_s", [0.05, 0.5])
def test_a_stall_that_comes_now_and_then_is_learned(typical_s: float) -> None:
    assert false_alarms(TIMES_5["any"], typical_s, 1, stall_s=5.0, evaluation_s=20.0) == 0


@pytest.mark.parametrize("alpha", [3.0, 4.0, 6.0])
def test_a_tail_without_end_raises_next_to_none(alpha: float) -> None:
    def heavy(chance: random.Random) -> float:
        return chance.paretovariate(alpha)

    assert sum(false_alarms(heavy, 0.1, seed) for seed in range(4)) <= 1


@pytest.mark.parametrize("typical_s", [0.01, 0.05, 0.2, 1.0, 5.0])
def test_steady_steps_are_answered_within_three_of_them_and_a_second(typical_s: float) -> None:
    chance, line = random.Random(4), Deadline(1.0)
    for _ in range(1500):
        line.learn(typical_s * chance.lognormvariate(0.0, 0.04))
    looked_s = 0.2  # A look, and the way to the controller.
    assert line.seconds + looked_s <= 3 * typical_s + 1.0


def test_few_steps_prove_little() -> None:
    line = Deadline(1.0)
    line.learn(*[0.5] * (STEPS_MIN - 1))
    assert line.seconds == BEFORE_S
    line.learn(0.5)
    early_s = line.seconds
    line.learn(*[0.5] * 1000)
    assert early_s > 4.0 > line.seconds


def test_more_alarms_a_week_make_it_quicker_and_half_a_second_is_the_least() -> None:
    patient, hasty = Deadline(0.01), Deadline(1000.0)
    chance = random.Random(5)
    for _ in range(1000):
        step_s = chance.lognormvariate(0.0, 0.2)
        patient.learn(step_s)
        hasty.learn(step_s)
    assert hasty.seconds < patient.seconds
    quick = Deadline(1.0)
    quick.learn(*[0.001] * 1000)
    assert quick.seconds == FLOOR_S


def test_what_is_long_past_is_forgotten() -> None:
    line = Deadline(1.0)
    line.learn(*[0.5] * 100, 20.0)
    assert line.seconds > 20.0
    line.learn(*[0.5] * 1200)
    line.learn(*[0.5] * 100)
    assert line.seconds < 3.0
