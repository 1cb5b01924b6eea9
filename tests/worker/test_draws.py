"""The place that is kept is that of the first fetch for a step; its samples are all that follow."""

from trainmover.ids import Step
from trainmover.protocol.messages import Draw
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.draws import AHEAD, Draws
from trainmover.worker.data.loops import Loops


class Script:
    """Draws from loops, and makes steps."""

    def __init__(self) -> None:
        self.loops = Loops()
        self.draws = Draws(self.loops)

    def loop(self) -> Batches:
        batches = Batches(range(9), 1, samples=True)
        self.loops.begin(batches)
        return batches

    def fetch(self, batches: Batches) -> bool:
        """Whether it was not the first for its step."""
        self.loops.enter(batches)
        goes_on = self.draws.go_on
        self.draws.take(batches, b"", Step(0))
        return goes_on

    def step(self) -> tuple[str, list[Draw]]:
        warning, drawn = self.draws.warning(), self.draws.samples
        self.draws.begin_step()
        self.draws.end_step()
        return warning, drawn


def test_only_the_first_fetch_after_a_step_is_kept() -> None:
    script = Script()
    batches = script.loop()
    assert not script.fetch(batches)
    assert script.fetch(batches)
    _, drawn = script.step()
    assert [draw.ids for draw in drawn] == [[0], [1]]
    assert not script.fetch(batches)


def test_loops_side_by_side_make_one_step() -> None:
    script = Script()
    pair = script.loop(), script.loop()
    for _ in range(2):
        assert [script.fetch(one) for one in pair] == [False, True]
        _, drawn = script.step()
    assert [(draw.source, draw.ids) for draw in drawn] == [("0", [1]), ("1", [1])]


def test_a_loop_that_begins_inside_has_a_first_fetch_of_its_own() -> None:
    script = Script()
    outer = script.loop()
    assert not script.fetch(outer)
    inner = script.loop()
    assert not script.fetch(inner)
    _, drawn = script.step()
    assert [draw.source for draw in drawn] == ["0", "0[0.1]/0"]
    assert not script.fetch(inner)


def test_a_script_that_draws_ahead_is_warned_once() -> None:
    script = Script()
    batches = script.loop()
    script.fetch(batches)
    said = []
    for _ in range(5):
        script.fetch(batches)
        said.append(script.step()[0])
    assert said == ["", "", AHEAD, "", ""]
