"""The pure parts of the arm that measures inside the ranks."""

from bench.own_cost import SCRIPTS, Cost, _each_step, judge


def test_a_step_is_from_one_fetch_to_the_next_behind_the_first_steps() -> None:
    """Rank, step, our nanoseconds, our calls, all threads' nanoseconds; all but the first two add
    up."""
    lines = [[0, 39, 9, 9, 9], [0, 40, 10, 20, 30], [0, 41, 11, 22, 33], [0, 42, 13, 26, 39]]
    assert _each_step(lines) == [[1, 2, 3], [2, 4, 6]]


def test_every_script_has_a_claim_of_time() -> None:
    cost = Cost(own_ms=0.6, calls=100, more_ms=1, functions={})
    claims = judge(dict.fromkeys(SCRIPTS, cost))
    assert [(claim.unit, claim.holds) for claim in claims] == [
        ("ms", False),
        ("calls", True),
        ("ms", True),
    ]
