"""What becomes of variables where a step is passed over."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from trainmover.errors import StateMismatch
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
    refusal = Refusal(Rank(1), variables, loops, SimpleNamespace())
    refusal.parted = {"own"}
    refusal.pass_over([Count(held, name, 2) for name in list(held)])
    assert held == {"same": 9, "own": 7, "tracked": 7}
    assert stays == [{"same"}]


@pytest.mark.parametrize("keeps", [True, False])
def test_casts_that_outlast_a_step_are_refused(*, keeps: bool) -> None:
    """Torch keeps them, and tells nobody."""
    variables: Any = SimpleNamespace(frames=lambda frame: [frame])
    refusal = Refusal(Rank(1), variables, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    refusal._refuse_casts()
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=keeps):
        if keeps:
            with pytest.raises(StateMismatch, match="lies around the steps"):
                refusal._refuse_casts()
        else:
            refusal._refuse_casts()


def test_what_lines_since_the_fetch_have_made_is_known_but_for_what_steps_store_to() -> None:
    variables: Any = SimpleNamespace(
        in_steps=lambda path: path == "in_step", left=SimpleNamespace(changed={key("left")})
    )
    loops: Any = SimpleNamespace()
    refusal = Refusal(Rank(1), variables, loops, SimpleNamespace())
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


@pytest.mark.parametrize(
    ("theirs", "now", "mine", "named"),
    [
        pytest.param(12.0, 12.0, 8.0, True, id="the sum is what it was, and here one's own part"),
        pytest.param(10.0, 12.0, 8.0, True, id="the sum is another"),
        pytest.param(None, 12.0, 8.0, True, id="the rank had none at its fetch"),
        pytest.param(3.0, None, 8.0, True, id="the source has none"),
        pytest.param(10.0, 12.0, 12.0, False, id="it is as on the source"),
        pytest.param(8.0, 12.0, 8.0, False, id="no line has changed it"),
        pytest.param(None, None, 8.0, False, id="it is only there for who compares all"),
    ],
)
def test_what_comes_of_collectives_whose_values_are_gone_must_be_as_on_the_source(
    theirs: float | None, now: float | None, mine: float, *, named: bool
) -> None:
    def of(value: float | None) -> dict[str, object]:
        return {"other": 1} if value is None else {"other": 1, "total": value}

    comparison = Comparison(lambda _: ("train.py", 3))
    data = [msgspec.msgpack.encode([*captured(**of(one))]) for one in (1.0, 2.0, 3.0, now)]
    own = msgspec.msgpack.encode([*captured(**of(mine))])
    there = captured(**of(theirs))
    assert len(comparison.asked(there.found, data, own)) == named
    assert not comparison.asked(there.found, [b""] * 4, own)
    left = SimpleNamespace(changed=set[str]())
    variables: Any = SimpleNamespace(
        look_again=lambda: None,
        capture=lambda full: own,
        comparison=comparison,
        frames=lambda _: [],
        in_steps=lambda path: False,
        summed=set[str](),
        left=left,
        put_brief=lambda *_: None,
        put_away=lambda *_, **more: None,
    )
    loops: Any = SimpleNamespace()
    refusal = Refusal(Rank(1), variables, loops, SimpleNamespace())
    refusal._theirs, refusal.history = there, data
    if named:
        with pytest.raises(StateMismatch, match="`total`") as raised:
            refusal.check_begun(asked=False, asked_since_fetch=True)
        assert "collectives" in str(raised.value)
    else:
        refusal.check_begun(asked=False, asked_since_fetch=True)


def key(name: str) -> str:
    return f"train.py\x1fmain\x1f1\x1f{name}"


def captured(**found: object) -> Captured:
    entries = {key(name): entry for name, entry in found.items()}
    return Captured([], entries, {}, [], [], {}, [], [])
