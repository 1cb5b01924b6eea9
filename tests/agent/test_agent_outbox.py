"""What an agent keeps until it is safe, and for how long it pauses between two dials."""

import pytest

from trainmover.agent.decide import PAUSE_S_MAX, pause_s
from trainmover.agent.outbox import Outbox


def test_facts_are_kept_in_order_until_they_are_safe() -> None:
    outbox = Outbox()
    for fact in (b"a", b"b", b"c"):
        outbox.keep(fact)
    outbox.drop(2)
    outbox.drop(1)
    assert (outbox.dropped, list(outbox.kept)) == (2, [b"c"])
    outbox.drop(9)
    assert (outbox.dropped, list(outbox.kept)) == (3, [])


@pytest.mark.parametrize("bounds", [{"facts_max": 3}, {"bytes_max": 30}])
def test_it_has_bounds(bounds: dict[str, int]) -> None:
    outbox = Outbox(**bounds)
    for _ in range(3):
        outbox.keep(b"0123456789")
    assert not outbox.too_full
    outbox.keep(b"0123456789")
    assert outbox.too_full
    outbox.drop(1)
    assert not outbox.too_full


def test_pauses_grow_and_are_never_the_same_for_all() -> None:
    assert pause_s(0, 0.0) == 0.025
    assert pause_s(0, 1.0) == 0.05
    assert [pause_s(attempt, 1.0) for attempt in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert pause_s(4, 1.0) == pause_s(9999, 1.0) == PAUSE_S_MAX
