"""Speed and loss come from what is committed, and the gap of an incident is no step time."""

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Columns, Committed, Row, Taking, columns_of
from trainmover.server.view.progress import Progress


def told(rank: int, *rows: tuple[int, int], first: bool = False) -> Columns:
    made = [Row(step=Step(s), at_us=at, values={"loss": s / 2}) for s, at in rows]
    fact = Committed(rank=Rank(rank), epoch=Epoch(1), rows=made, first=first)
    [alike] = columns_of([fact])
    return alike


def test_the_median_leaves_out_the_first_step_of_an_epoch() -> None:
    progress = Progress()
    progress.take(told(0, (1, 1_000), (2, 11_000), (3, 21_000), first=True))
    progress.take(told(0, (4, 900_000), (5, 910_000), first=True))
    assert list(progress.ranks[Rank(0)].gaps_us) == [10_000, 10_000, 10_000]
    assert progress.step_ms == 10.0


def test_the_speed_is_that_of_the_lowest_rank_that_knows() -> None:
    progress = Progress()
    progress.take(told(2, (1, 1), (2, 30_001)))
    progress.take(told(1, (1, 1), (2, 20_001)))
    progress.take(told(0, (1, 1)))
    assert progress.step_ms == 20.0


def test_step_is_the_slowest_rank_s_and_loss_the_lowest_rank_s() -> None:
    progress = Progress()
    assert (progress.step, progress.loss, progress.step_ms) == (0, None, None)
    progress.take(told(1, (1, 0), (2, 1)))
    progress.take(told(0, (1, 0)))
    assert (progress.step, progress.loss) == (1, 0.5)


def taking(rank: int, here: int, epoch: int = 2) -> Taking:
    return Taking(rank=Rank(rank), epoch=Epoch(epoch), bytes=here, bytes_whole=100)


def test_what_joiners_have_by_now_is_summed_for_their_epoch() -> None:
    progress = Progress()
    progress.note(taking(0, 80, epoch=1))
    assert progress.taken(Epoch(2)) is None
    for fact in (taking(0, 10), taking(1, 20), taking(0, 30)):
        progress.note(fact)
    assert progress.taken(Epoch(2)) == (30 + 20, 200)
