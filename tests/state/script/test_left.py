"""What a step leaves in variables for the lines behind it, where the step is passed over."""

import sys
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from captures import JOINER, RANK, Job

from trainmover.errors import StateMismatch
from trainmover.state.script.comparison import decoded, path_of
from trainmover.state.script.left import Left, Now
from trainmover.state.script.search.layout import Slot
from trainmover.state.script.values import entry_of


class Script:
    """With attributes of one object for its variables."""

    def __init__(self, **values: Any) -> None:
        self.values = SimpleNamespace(**values)
        self.left = Left(self._now, lambda _, value: entry_of(value), lambda key: f"`{key}`")

    def _now(self, _: FrameType | None) -> Iterator[Now]:
        held = vars(self.values)
        for name, value in held.items():
            yield Now(Slot(name, held, name, False), value, None)

    def step(self, change: Callable[[Any], object]) -> None:
        frame = sys._getframe()
        self.left.begin_step(frame)
        change(self.values)
        self.left.end_step(frame)


def seen_in(*changes: Callable[[Any], object], **values: Any) -> Script:
    script = Script(**values)
    for change in changes:
        script.step(change)
    return script


def test_what_a_step_changes_is_seen_but_in_the_first() -> None:
    script = seen_in(
        lambda v: setattr(v, "cache", 1),
        lambda v: v.box.append(1),
        lambda v: setattr(v, "flag", True),
        cache=None, box=[], flag=False, rate=0.5,
    )  # fmt: skip
    assert script.left.keys == {"box", "flag"}


def test_who_uses_what_is_gone_hears_of_it_until_the_next_fetch() -> None:
    script = seen_in(lambda v: None, lambda v: v.box.append(1), box=[], rate=0.5)
    box = script.values.box
    script.left.put_away(None, set())
    assert script.values.rate == 0.5
    with pytest.raises(
        StateMismatch, match="The script reads `box`, which its last step had changed"
    ):
        sum(script.values.box)
    script.left.put_away(None, set())
    script.left.put_back(None)
    assert script.values.box is box


@pytest.mark.parametrize("how", ["stored", "cleared", "deleted", "filled"])
def test_who_stores_or_empties_it_goes_on(how: str) -> None:
    script = seen_in(lambda v: None, lambda v: v.box.append(1), box=[])
    box = script.values.box
    script.left.put_away(None, set())
    if how == "stored":
        script.values.box = [7]
    elif how == "cleared":
        script.values.box.clear()
    elif how == "deleted":
        del script.values.box[:]
    else:
        script.values.box[:] = [7]
    script.left.put_back(None)
    assert script.values.box == ([7] if how in ("stored", "filled") else [])
    assert (script.values.box is box) == (how != "stored")


def test_what_lines_since_the_fetch_have_stored_is_the_rank_s() -> None:
    script = Script(seconds=[0.5], count=3)
    script.left.stand(None)
    script.values.seconds = [0.7]
    script.left.put_away(None, {"seconds", "count"})
    assert script.values.seconds == [0.7]
    with pytest.raises(StateMismatch, match="`count`"):
        script.values.count + 1


OWN = """
    turn, constant, rows = {first}, {rank}, [{rank}]
    def flip(x):
        global turn
        turn = (turn + 1) % 2
        if {changes}: rows.append(1)
    @job.marked.step
    def train_step(x):
        flip(x)
    def main():
        paired = -1
        for x in job.batches(range(20)):
            train_step(x)
            paired = -1 if constant else paired + 1
    main()
    print(turn, constant, rows)
"""
"""`paired` is bound by a line between steps, which runs where the step before it is passed over."""


def of_rank(
    run: Callable[[str], Job], first: int, changes: str = "False", parted: str = ""
) -> list[str]:
    """Of the rank's own, what the step behind its last fetch may have changed. parted: by their
    courses"""
    Job.marked = SimpleNamespace(step=lambda function: function)  # type: ignore[attr-defined]
    lost = run(OWN.format(first=first, rank=1, changes=changes))
    source = run(OWN.format(first=0, rank=0, changes="False"))
    at = RANK - 1
    history = [source.theirs[0], source.theirs[JOINER], source.theirs[at], source.theirs[RANK]]
    found = source.variables.comparison.of_rank(
        lost.theirs[at],
        lost.theirs[JOINER],
        history,
        lost.own[at],
        in_steps=lambda path: path in ("turn", "rows"),
        parted={key for key in decoded(lost.theirs[at]).found if path_of(key) == parted},
        but=set(),
    )
    return [one.name for one in found]


def test_a_value_of_the_rank_s_own_that_its_last_step_may_have_changed_is_named(
    run: Callable[[str], Job],
) -> None:
    """The other rank's, which has flipped to the same, says nothing of it."""
    assert of_rank(run, first=1) == ["turn"]
    assert of_rank(run, first=0) == []
    assert of_rank(run, first=0, parted="turn") == ["turn"]


def test_one_that_has_changed_before_is_named_though_no_other_rank_changes_it(
    run: Callable[[str], Job],
) -> None:
    assert of_rank(run, first=0, changes="x == 5") == ["rows"]


def test_what_is_known_stays_though_steps_change_it() -> None:
    script = seen_in(
        lambda v: None, lambda v: setattr(v, "count", v.count + 1), count=0, flag=False
    )
    assert script.left.keys == {"count"}
    script.left.put_away(None, {"flag"}, {"count", "flag"})
    assert (script.values.count, script.values.flag) == (1, False)


def test_what_cannot_be_put_away_is_seen_to_change_as_well() -> None:
    rows = [(n, [n]) for n in range(100)]
    script = seen_in(lambda v: None, lambda v: v.rows[50][1].append(1), rows=rows, count=0)
    assert (script.left.keys, script.left.changed) == (set(), {"rows"})
