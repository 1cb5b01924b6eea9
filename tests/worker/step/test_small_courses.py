"""What two ranks have had at every fetch is told from what they have now."""

from trainmover.ids import Step
from trainmover.worker.step.courses import Courses, parted


def course(*states: bytes) -> dict[str, int]:
    courses = Courses()
    found: dict[str, int] = {}
    for step, state in enumerate(states, 1):
        found = courses.fetched(Step(step), {"meter": state, "same": b""}, {})
    return found


def test_what_was_another_once_is_another_for_good() -> None:
    assert course(b"0", b"1", b"0") == course(b"0", b"1", b"0")
    assert course(b"0", b"1", b"0") != course(b"0", b"2", b"0")
    assert course(b"0", b"1", b"0") != course(b"0")
    assert course(b"1", b"0") != course(b"2", b"0")
    assert course(b"0", b"0") == course(b"0")


def test_a_fetch_that_is_told_again_counts_once() -> None:
    courses = Courses()
    courses.fetched(Step(1), {"meter": b"0"}, {})
    once = courses.fetched(Step(2), {"meter": b"1"}, {})
    assert courses.fetched(Step(2), {"meter": b"1"}, {}) == once
    assert [*courses.at] == [1, 2]


def test_the_last_few_are_known() -> None:
    courses = Courses()
    found = [courses.fetched(Step(step), {"meter": b"%d" % step}, {}) for step in range(1, 9)]
    assert courses.at == {step: found[step - 1] for step in (6, 7, 8)}


def test_who_takes_a_rank_goes_on_as_it_would_have() -> None:
    lost, joiner = Courses(), Courses()
    for step in range(1, 4):
        small = {"meter": b"%d" % step}
        known = lost.fetched(Step(step), small, {})
    joiner.go_on_as(Step(3), small, known)
    following = {"meter": b"4", "other": b""}
    assert joiner.fetched(Step(4), following, {}) == lost.fetched(Step(4), following, {})
    joiner.forget()
    assert joiner.at == {}


def stored(*values: bytes) -> dict[str, int]:
    courses = Courses()
    found: dict[str, int] = {}
    for step, value in enumerate(values, 1):
        found = courses.fetched(Step(step), {}, {"flag": value})
    return found


def test_a_variable_has_a_course_once_it_has_changed() -> None:
    assert stored(b"0", b"0") == {}
    assert parted(stored(b"0", b"0"), stored(b"1", b"1")) == set()
    assert parted(stored(b"0", b"1"), stored(b"0", b"1")) == set()
    assert parted(stored(b"0", b"1", b"0"), stored(b"0", b"0", b"0")) == {"flag"}
    assert parted(stored(b"0", b"0", b"0"), stored(b"0", b"1", b"0")) == {"flag"}
    assert parted(stored(b"0", b"1"), None) == {"flag"}


def test_a_joiner_keeps_the_course_of_a_variable() -> None:
    lost, joiner = Courses(), Courses()
    for step, value in enumerate([b"0", b"1", b"0"], 1):
        known = lost.fetched(Step(step), {}, {"flag": value, "rank": b"1"})
    joiner.go_on_as(Step(3), {"flag": b"0"}, known)
    for value in (b"0", b"1"):
        now = {"flag": value, "rank": b"1"}
        assert joiner.fetched(Step(4), {}, now) == lost.fetched(Step(4), {}, now)
