"""The pure parts of the arm that measures inside the ranks."""

from bench.own_clock import Clock
from bench.own_cost import ARMS, Cost, _each_step, judge


def test_a_step_is_from_one_fetch_to_the_next_behind_the_first_steps() -> None:
    """Rank, step, our nanoseconds, our calls, all threads' nanoseconds; all but the first two add
    up."""
    lines = [[0, 39, 9, 9, 9], [0, 40, 10, 20, 30], [0, 41, 11, 22, 33], [0, 42, 13, 26, 39]]
    assert _each_step(lines, 40) == [[1, 2, 3], [2, 4, 6]]


def test_timed_steps_end_where_counted_ones_begin() -> None:
    lines = [[0, step, step, step, step * step] for step in range(6)]
    assert _each_step(lines, 1, 3) == [[1, 1, 3], [1, 1, 5]]
    assert _each_step(lines, 3) == [[1, 1, 7], [1, 1, 9]]


def test_calls_are_counted_only_from_where_they_are_asked_for() -> None:
    clock = Clock()
    called = clock.around(lambda: _nothing(), ours=True)
    called()
    assert (clock.calls, not clock.functions) == (0, True)
    clock.count()
    called()
    assert clock.calls == 2  # The function itself, and what it calls.
    assert sum(clock.functions.values()) == 2


def _nothing() -> None: ...


def test_claims_are_of_the_arms_that_have_one() -> None:
    cost = Cost(own_ms=0.6, calls=100, more_ms=1, functions={})
    claims = judge(dict.fromkeys(ARMS, cost))
    assert [(claim.unit, claim.holds) for claim in claims] == [
        ("ms", False),
        ("calls", True),
        ("ms", True),
    ]
