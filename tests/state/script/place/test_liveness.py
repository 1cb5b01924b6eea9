"""Which names of a frame may still be read, asked of frames that are under way."""

import contextlib
import sys

from trainmover.state.script.place.liveness import live_at


def read_later() -> frozenset[str]:
    """Of the frame that has called this."""
    frame = sys._getframe(1)
    return live_at(frame.f_code, frame.f_lasti).names


def of_the_caller() -> frozenset[str]:
    frame = sys._getframe(2)
    return live_at(frame.f_code, frame.f_lasti).names


def test_a_name_that_is_stored_before_it_is_read_is_dead_while_a_function_is_called() -> None:
    kept, lost = 1, 2
    live = read_later()
    lost = 3
    assert live == {"kept"}, (kept, lost)


def test_so_it_is_while_a_comprehension_runs() -> None:
    kept, errors = 1, [2]
    lives = [of_the_caller() if sys.version_info < (3, 12) else read_later() for _ in range(1)]
    errors = [3]
    assert "kept" in lives[0]
    assert "errors" not in lives[0], (kept, errors)


def test_what_a_loop_around_goes_through_counts_while_it_runs() -> None:
    """Its iterator lies where nobody sees it, as that of the batches of one update."""
    many, parts, lives = 2, [1], []
    for _ in range(many):
        lives.append(read_later())
    lives += [of_the_caller() if sys.version_info < (3, 12) else read_later() for _ in parts]
    many, parts = 3, []
    behind = read_later()
    assert ["many" in live for live in lives] == [True, True, False]
    assert "parts" in lives[2]
    assert behind >= {"many", "parts"}, (many, parts)


def test_a_name_is_live_that_is_stored_only_where_nothing_raises() -> None:
    kept, lost = 1, 2
    live = read_later()
    try:
        kept = int("x")
        lost = 3
    except ValueError:
        lost = 4
    assert live == {"kept"}, (kept, lost)


def test_so_it_is_where_errors_are_suppressed() -> None:
    kept = 1
    live = read_later()
    with contextlib.suppress(ValueError):
        kept = int("x")
    assert "kept" in live, kept


def test_a_block_that_lets_errors_pass_stores_all_that_it_stores() -> None:
    lost = 1
    live = read_later()
    with contextlib.nullcontext():
        lost = 2
    assert "lost" not in live, lost


def test_a_call_of_next_holds_nothing_and_others_may() -> None:
    calls: list[bool] = []

    def note(_: int) -> int:
        frame = sys._getframe(1)
        calls.append(live_at(frame.f_code, frame.f_lasti).calls)
        return 0

    def by_hand() -> None:
        next(map(note, [1]))

    sum(map(note, [1]))
    by_hand()
    for _ in map(note, [1]):
        pass
    assert calls == [True, False, False]
