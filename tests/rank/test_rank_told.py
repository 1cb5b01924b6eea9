"""Committed rows are told in batches, and stay in doubt until they may have been heard."""

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Committed, Row
from trainmover.rank.told import FLUSH_NS, LONG_NS, UNHEARD_KEPT, Rows


def row(step: int) -> Row:
    return Row(step=Step(step), at_us=0, values={})


def enter(book: Rows[int], step: int, now_ns: int) -> bool:
    return book.enter(row(step), step, now_ns)


def say(book: Rows[int], now_ns: int = 0, *, unheard: bool = False) -> Committed | None:
    return book.say_rows(Rank(3), Epoch(2), now_ns, unheard=unheard)


def test_rows_are_told_so_far_apart_and_all_of_them() -> None:
    book, told = Rows[int](4), []
    for step in range(1, 50):
        now_ns = step * FLUSH_NS // 10
        if enter(book, step, now_ns):
            fact = say(book, now_ns)
            assert fact is not None
            told.append([one.step for one in fact.rows])
            assert (fact.rank, fact.epoch, fact.first, fact.gap_us) == (3, 2, False, None)
    assert {len(one) for one in told} == {11}
    assert [step for one in told for step in one] == list(range(1, 45))


def test_the_first_of_an_epoch_is_told_at_once_with_the_gap_it_left() -> None:
    book = Rows[int](4)
    assert not enter(book, 1, 1000)
    assert not enter(book, 2, 3000)
    book.first_of = Epoch(2)
    assert enter(book, 3, 10_000)
    fact = say(book, 10_000)
    assert fact is not None
    assert (fact.first, fact.gap_us, fact.median_us) == (True, 7, 2)
    assert book.first_of is None
    enter(book, 4, 11_000)
    again = say(book, 11_000)
    assert again is not None
    assert (again.first, again.gap_us, again.median_us) == (False, None, 1)
    assert say(book) is None, "nothing is told twice"


def test_a_long_step_is_told_at_once_unless_too_many_ranks_would_tell() -> None:
    for ranks, long_ns in [(4, LONG_NS), (2000, 2 * LONG_NS)]:
        book = Rows[int](ranks)
        assert not enter(book, 1, 0)
        say(book)
        assert not enter(book, 2, long_ns - 1)
        assert enter(book, 3, 2 * long_ns - 1)


def test_what_was_told_lately_is_in_doubt() -> None:
    """The newest two batches, and all that have not had their time to arrive."""
    book = Rows[int](4)
    for step in range(1, 5):
        enter(book, step, 0)
        say(book, step * FLUSH_NS)
    enter(book, 5, 0)
    assert book.in_doubt == [3, 4, 5]
    for step in range(6, 11):
        say(book, step * FLUSH_NS)
        enter(book, step, 0)
    say(book, 10 * FLUSH_NS + FLUSH_NS // 2)
    assert book.in_doubt == [8, 9, 10]


def test_while_nobody_hears_all_stays_in_doubt_within_bounds() -> None:
    book = Rows[int](4)
    for step in range(2 * UNHEARD_KEPT):
        enter(book, step, 0)
        say(book, unheard=True)
    assert len(book.in_doubt) == UNHEARD_KEPT
    enter(book, 9000, 0)
    say(book, 10 * FLUSH_NS)
    assert len(book.in_doubt) == 2


def test_who_takes_a_place_tells_what_may_not_be_told_and_nothing_that_is_undone() -> None:
    book, before = Rows[int](4), Rows[int](4)
    enter(book, 99, 0)
    enter(before, 7, 2000)
    book.inherit(((row(step), step) for step in (5, 6, 7, 8)), Step(7))
    assert book.in_doubt == [5, 6, 7]
    book.go_on_from(before)
    book.first_of = Epoch(3)
    enter(book, 8, 5000)
    fact = say(book, 5000)
    assert fact is not None
    assert ([one.step for one in fact.rows], fact.gap_us) == ([5, 6, 7, 8], 3)
