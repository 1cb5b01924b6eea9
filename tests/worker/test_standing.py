"""What follows from the orders a rank was given."""

import pytest

from trainmover.worker.standing import Standing, Unwind


@pytest.mark.parametrize(
    ("epoch", "ordered", "pending"), [(1, 0, False), (1, 1, False), (1, 2, True)]
)
def test_an_interrupt_of_a_newer_epoch_is_pending(epoch: int, ordered: int, pending: bool) -> None:
    assert Standing(epoch=epoch, ordered=ordered).pending is pending


@pytest.mark.parametrize(
    ("pause", "epoch", "discarded", "counts"),
    [(2, 1, 0, True), (2, 2, 0, False), (2, 1, 2, False), (3, 1, 2, True), (0, 0, 0, False)],
)
def test_a_pause_counts_until_it_is_over_or_taken_back(
    pause: int, epoch: int, discarded: int, counts: bool
) -> None:
    asked = Standing(epoch=epoch, discarded=discarded, pause_asked=pause)
    agreed = Standing(epoch=epoch, discarded=discarded, pause_at=pause)
    assert asked.pause_flag == (pause if counts else 0)
    assert agreed.paused is counts
    assert not asked.paused


def test_go_puts_in_force_what_was_switched_unless_a_newer_epoch_was_ordered() -> None:
    joiner = Standing(epoch=0, ordered=2, switched=2)
    joiner.go(2)
    assert (joiner.epoch, joiner.live, joiner.pending) == (2, True, False)
    overtaken = Standing(epoch=1, ordered=3, switched=2)
    overtaken.go(2)
    assert (overtaken.epoch, overtaken.live) == (1, False)
    late = Standing(epoch=4, ordered=4, switched=4)
    late.go(2)
    assert late.epoch == 4


def test_a_leaver_that_is_overtaken_leaves_all_the_same() -> None:
    """It wakes only when the next recovery has been ordered, which counts on others."""
    leaver = Standing(epoch=1, ordered=3, leave=2)
    with pytest.raises(Unwind):
        leaver.await_go(2)
    assert Standing(epoch=1, ordered=3).await_go(2) is False
    assert Standing(epoch=2, ordered=3, leave=1).await_go(2) is True
