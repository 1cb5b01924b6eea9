"""Parts of what decides say what is so, on hundreds of courses; a bug of one line is found."""

import pytest
from planting import planted

from trainmover.simulator.courses import COURSES, wrong_in

SEEDS = 40
"""Of each course."""

BUGS = {
    "who was slow is slow for ever": (
        "controller.policies.stragglers.pace",
        "if seen.told is not None and not seen.mostly_slow(OVER):",
        "if seen.told is None and not seen.mostly_slow(OVER):",
    ),
    "a rank is compared with itself, too": (
        "controller.policies.stragglers.excess",
        "lower = self._after_lower if value < self._after_lower else self._lower",
        "lower = self._lower",
    ),
    "a slow machine is told at every step": (
        "controller.policies.stragglers.pace",
        "seen.told = step + seen.again",
        "seen.told = step",
    ),
    "machines are said to wait for each other where one waits": (
        "controller.policies.stragglers.ways",
        "if one < other and (other, one) in waits",
        "if one < other",
    ),
    "a controller that was busy accuses all": (
        "controller.policies.anomalies.late",
        "return max(usual + DEVIATIONS * spread, LEAST_S)",
        "return max(DEVIATIONS * spread, LEAST_S)",
    ),
    "memory that comes and goes is said to be full soon": (
        "controller.policies.anomalies.filling",
        "falls = min(most, least)",
        "falls = max(most, least)",
    ),
    "planned moves count as incidents of a machine": (
        "controller.policies.anomalies.repeats",
        "if incident.kind is not Kind.RECOVERY or incident.machine is None:",
        "if incident.machine is None:",
    ),
}


@pytest.mark.parametrize("course", range(len(COURSES)))
def test_nothing_else_is_said_than_is_so(course: int) -> None:
    for seed in range(course, SEEDS * len(COURSES), len(COURSES)):
        assert not wrong_in(seed), f"seed {seed}"


@pytest.mark.parametrize("what", BUGS)
def test_a_planted_bug_is_found(what: str) -> None:
    with planted(*BUGS[what]):
        assert any(_found(seed) for seed in range(SEEDS * len(COURSES)))


def _found(seed: int) -> bool:
    try:
        return bool(wrong_in(seed))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return True
