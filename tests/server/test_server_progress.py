"""Speed and loss come from what is committed, and the gap of an incident is no step time."""

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Committed, Row
from trainmover.server.progress import Progress


def fact(rank: int, *rows: tuple[int, int], first: bool = False) -> Committed:
    made = [Row(step=Step(s), at_us=at, values={"loss": s / 2}) for s, at in rows]
    return Committed(rank=Rank(rank), epoch=Epoch(1), rows=made, first=first)


def test_the_median_leaves_out_the_first_step_of_an_epoch() -> None:
    progress = Progress()
    progress.take(fact(0, (1, 1_000), (2, 11_000), (3, 21_000), first=True))
    progress.take(fact(0, (4, 900_000), (5, 910_000), first=True))
    assert list(progress.ranks[Rank(0)].gaps_us) == [10_000, 10_000, 10_000]
    assert progress.step_ms == 10.0


def test_step_is_the_slowest_rank_s_and_loss_the_lowest_rank_s() -> None:
    progress = Progress()
    assert (progress.step, progress.loss, progress.step_ms) == (0, None, None)
    progress.take(fact(1, (1, 0), (2, 1)))
    progress.take(fact(0, (1, 0)))
    assert (progress.step, progress.loss) == (1, 0.5)
