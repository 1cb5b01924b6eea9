"""What becomes of variables where a step is passed over."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from trainmover.ids import Rank
from trainmover.state.script.comparison import Captured, Comparison
from trainmover.state.script.counts import Count
from trainmover.worker.join.refusal import Refusal


def test_only_what_is_compared_and_has_been_the_same_on_all_ranks_is_counted_on() -> None:
    held, stays = {"same": 7, "own": 7, "tracked": 7}, list[set[str]]()
    left = SimpleNamespace(put_away=lambda frame, written, known: stays.append(known))
    variables: Any = SimpleNamespace(
        counted=lambda counts: {one.name for one in counts} - {"tracked"},
        written_in_steps=lambda *_: set(),
        left=left,
    )
    loops: Any = SimpleNamespace()
    refusal = Refusal(Rank(1), variables, loops)
    refusal.parted = {"own"}
    refusal.pass_over([Count(held, name, 2) for name in list(held)])
    assert held == {"same": 9, "own": 7, "tracked": 7}
    assert stays == [{"same"}]


def test_what_lines_since_the_fetch_have_made_is_known_but_for_what_steps_store_to() -> None:
    variables: Any = SimpleNamespace(
        in_steps=lambda path: path == "in_step", left=SimpleNamespace(changed={key("left")})
    )
    loops: Any = SimpleNamespace()
    refusal = Refusal(Rank(1), variables, loops)
    own = captured(total=1.5, in_step=1.5, left=1.5, same=0.0, new=1)
    data = msgspec.msgpack.encode([*own])
    assert refusal._by_lines(data) == set()
    refusal._theirs = captured(total=0.0, in_step=0.0, left=0.0, same=0.0, gone=1)
    assert refusal._by_lines(data) == {key("total")}


@pytest.mark.parametrize(
    ("theirs", "before", "now", "mine", "named"),
    [
        pytest.param(4.0, 4.0, 6.0, 6.0, False, id="as on the source, which had what the rank had"),
        pytest.param(4.0, 4.0, 6.5, 6.0, True, id="the source's step has changed it as well"),
        pytest.param(5.0, 4.0, 6.0, 6.0, True, id="the rank had a value of its own"),
        pytest.param(4.0, 4.0, 4.0, 6.0, True, id="the source's came to the same again"),
        pytest.param(4.0, 4.5, 6.5, 4.0, False, id="no line has changed it"),
    ],
)
@pytest.mark.parametrize("name", ["in_step", "elsewhere"])
def test_what_both_a_step_and_lines_change_is_known_only_from_an_equal_source(
    theirs: float, before: float, now: float, mine: float, name: str, *, named: bool
) -> None:
    comparison = Comparison(lambda _: ("train.py", 3))
    data = [msgspec.msgpack.encode([*captured(**{name: one})]) for one in (1.0, 2.0, before, now)]
    own = msgspec.msgpack.encode([*captured(**{name: mine})])
    there = captured(**{name: theirs}).found
    found = comparison.by_both(there, data, own, lambda path: path == "in_step", set())
    assert [one.name for one in found] == [name] * (named and name == "in_step")
    assert not comparison.by_both(there, data, own, lambda _: True, {key(name)})
    assert not comparison.by_both(there, [b""] * 4, own, lambda _: True, set())


def key(name: str) -> str:
    return f"train.py\x1fmain\x1f1\x1f{name}"


def captured(**found: object) -> Captured:
    entries = {key(name): entry for name, entry in found.items()}
    return Captured([], entries, {}, [], [], {}, [], [])
