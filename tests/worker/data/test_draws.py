"""The place that is kept is that of the first fetch for a step; its samples are all that follow."""

import pytest

from trainmover.errors import StateMismatch
from trainmover.ids import Step
from trainmover.protocol.messages import Draw
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.draws import Draws, KnownDraws, Place
from trainmover.worker.data.loops import Loops
from trainmover.worker.step.keeper import Moment, RankRecord


class Script:
    """Draws from loops, and makes steps."""

    def __init__(self) -> None:
        self.loops = Loops()
        self.draws = Draws(self.loops)
        self.steps = 0
        self.record: RankRecord | None = None

    def loop(self, over: object = range(30)) -> Batches:
        batches = Batches(over, 1, samples=True)
        batches.watch(lambda: 0)
        self.loops.begin(batches)
        return batches

    def fetch(self, batches: Batches) -> bool:
        """Whether it was not the first for its step."""
        self.loops.enter(batches)
        goes_on = self.draws.go_on
        if not goes_on:
            number = self.loops.fetches
            moment = Moment(b"rng %d" % number, {})
            place = Place(number, Step(self.steps + 1), moment, [[number]], [], [], b"")
            self.record = self.draws.mark(place, [])
        self.draws.take(batches, b"", Step(0), [])
        return goes_on

    def step(self) -> list[Draw]:
        drawn = self.draws.samples
        self.steps += 1
        self.draws.begin_step()
        self.draws.end_step()
        return drawn


def test_only_the_first_fetch_after_a_step_is_kept() -> None:
    script = Script()
    batches = script.loop()
    assert not script.fetch(batches)
    assert script.fetch(batches)
    drawn = script.step()
    assert [draw.ids for draw in drawn] == [[0], [1]]
    assert not script.fetch(batches)


def test_loops_side_by_side_make_one_step() -> None:
    script = Script()
    pair = script.loop(), script.loop()
    for _ in range(2):
        assert [script.fetch(one) for one in pair] == [False, True]
        drawn = script.step()
    assert [(draw.source, draw.ids) for draw in drawn] == [("0", [1]), ("1", [1])]


def test_a_loop_beside_that_is_begun_anew_goes_on_for_the_same_step() -> None:
    script = Script()
    first, second = script.loop(), script.loop(range(1))
    assert [script.fetch(one) for one in (first, second)] == [False, True]
    script.step()
    assert not script.fetch(first)
    with pytest.raises(StopIteration):
        script.fetch(second)
    assert script.fetch(script.loop(second.over))


def test_a_loop_that_begins_inside_has_a_first_fetch_of_its_own() -> None:
    script = Script()
    outer = script.loop()
    assert not script.fetch(outer)
    inner = script.loop()
    assert not script.fetch(inner)
    drawn = script.step()
    assert [draw.source for draw in drawn] == ["0", "0[0.1]/0"]
    assert not script.fetch(inner)


def test_a_step_that_is_made_again_has_the_same_batches() -> None:
    known: KnownDraws = {}
    for first in (0, 0, 1):
        script = Script()
        batches = script.loop()
        for _ in range(first):
            next(batches)
        for step in range(1, 4):
            script.fetch(batches)
            if first:
                with pytest.raises(StateMismatch, match="For step 1 rank 5 has drawn another"):
                    script.draws.check_again(5, Step(step), known)
                break
            script.draws.check_again(5, Step(step), known)
            script.step()
    assert [step for _, step in known] == [1, 2, 3]


def test_what_was_drawn_for_a_step_that_was_none_is_no_promise() -> None:
    script, known = Script(), KnownDraws()
    batches = script.loop()
    for _ in range(2):
        script.fetch(batches)
        script.draws.check_again(5, Step(1), known)
        script.draws.begin_step()
        script.draws.made_none(5, Step(1), known)
    script.fetch(batches)
    script.draws.check_again(5, Step(1), known)
    assert list(known) == [(5, 1)]


def test_a_step_that_was_given_up_may_be_made_again_with_the_same_batches() -> None:
    """The script has caught what it raised; then all went back, and it raises once more."""
    known: KnownDraws = {}
    for _ in range(2):
        script = Script()
        batches = script.loop()
        script.fetch(batches)
        script.draws.check_again(0, Step(1), known)
        script.draws.begin_step()
        script.draws.made_none(0, Step(1), known)
        script.fetch(batches)
        script.draws.check_again(0, Step(1), known)
    script = Script()
    script.fetch(script.loop(range(7, 9)))
    with pytest.raises(StateMismatch, match="another batch"):
        script.draws.check_again(0, Step(1), known)
