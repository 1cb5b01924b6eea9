"""The ruler that the downtime bench holds against both arms."""

from bench.gaps import Mark, longest_gap, median_step_ms, worst_gap


def steady(rank: int, *, first: int, count: int, at_ms: int, step_ms: int = 100) -> list[Mark]:
    return [Mark(rank, first + i, 1000 * (at_ms + i * step_ms)) for i in range(count)]


def with_hole(rank: int, *, resume_ms: int, resume_step: int) -> list[Mark]:
    """Steps 1 to 20 until 1900 ms, then on from `resume_step` at `resume_ms`."""
    before = steady(rank, first=1, count=20, at_ms=0)
    return before + steady(rank, first=resume_step, count=20, at_ms=resume_ms)


def test_the_median_step_is_taken_off_the_downtime() -> None:
    marks = with_hole(0, resume_ms=2900, resume_step=21)
    gap = longest_gap(marks, rank=0, from_us=1_950_000, to_us=2_900_000)
    assert gap is not None
    assert (gap.downtime_ms, gap.steps_lost) == (900.0, 0)


def test_steps_that_are_done_again_are_lost() -> None:
    marks = with_hole(0, resume_ms=5000, resume_step=11)
    gap = longest_gap(marks, rank=0, from_us=1_950_000, to_us=5_000_000)
    assert gap is not None
    assert gap.steps_lost == 10


def test_the_stayer_that_stood_still_longest_counts() -> None:
    marks = with_hole(0, resume_ms=2900, resume_step=21)
    marks += with_hole(1, resume_ms=3900, resume_step=21)
    gap = worst_gap(marks, stayers=[0, 1], from_us=1_950_000, to_us=4_000_000)
    assert gap is not None
    assert (gap.rank, gap.downtime_ms) == (1, 1900.0)


def test_a_stayer_that_never_went_on_is_no_result() -> None:
    marks = with_hole(0, resume_ms=2900, resume_step=21) + steady(1, first=1, count=20, at_ms=0)
    assert worst_gap(marks, stayers=[0, 1], from_us=1_950_000, to_us=3_000_000) is None


def test_a_stall_outside_the_stretch_is_not_counted() -> None:
    marks = with_hole(0, resume_ms=2900, resume_step=21)
    gap = longest_gap(marks, rank=0, from_us=500_000, to_us=700_000)
    assert gap is not None
    assert gap.downtime_ms == 0.0


def test_the_median_leaves_out_redone_steps_and_the_first_ones() -> None:
    assert median_step_ms(with_hole(0, resume_ms=9000, resume_step=11)) == 100.0
