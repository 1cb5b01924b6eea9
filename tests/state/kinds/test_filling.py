"""Containers take content and stay what they are, with what lies in them."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainmover.state import encode
from trainmover.state.kinds.filling import Filling, filled


def sent(value: Any) -> Any:
    return encode.decode(encode.encode(value))


def test_what_holds_the_same_is_the_same_object_still() -> None:
    inner, turned = {"a": [1]}, torch.ones(2, 3).T
    held: list[Any] = [inner, turned, (inner, 1)]
    assert filled(held, sent(held))
    assert held[0] is inner
    assert held[1] is turned
    assert held[2][0] is inner


@pytest.mark.parametrize("kind", [list, deque])
def test_also_where_it_has_moved(kind: Any) -> None:
    old, kept = torch.zeros(2), torch.ones(2)
    before = sent(kind([old, kept]))
    held = kind([kept, torch.full((2,), 2.0)])
    assert filled(held, before)
    assert held[1] is kept
    assert [one.tolist() for one in held] == [[0.0, 0.0], [1.0, 1.0]]
    assert kept.tolist() == [1.0, 1.0]


def test_what_was_the_newer_one_is_not_written_to_by_the_name_of_the_older() -> None:
    old, new = torch.zeros(2), torch.ones(2)
    before = sent({"old": old, "new": new})
    held = {"old": new, "new": torch.full((2,), 2.0)}
    assert filled(held, before)
    assert held["new"] is new
    assert new.tolist() == [1.0, 1.0]
    assert held["old"].tolist() == [0.0, 0.0]


def test_what_stands_at_its_place_is_filled_in_turn() -> None:
    whole = torch.zeros(4)
    held = {"parts": [whole[:2], whole[2:]], "rows": [[1], [2]]}
    parts, rows, before = held["parts"], held["rows"][0], sent(held)
    whole += 1
    rows.append(3)
    assert filled(held, before)
    assert held["parts"] is parts
    assert held["rows"][0] is rows
    assert (whole.tolist(), rows) == ([0.0] * 4, [1])


@pytest.mark.parametrize("anchor", [torch.zeros(2), torch.ones(2)])
def test_memory_of_what_is_trained_is_not_written_to(anchor: Tensor) -> None:
    net = nn.Linear(1, 2)
    nn.init.ones_(net.bias)
    net.anchor = net.bias.detach()  # type: ignore[assignment]
    alias: Any = net.anchor
    Filling(net.parameters()).put(net, "anchor", anchor)
    assert net.bias.tolist() == [1.0, 1.0]
    assert net.anchor.tolist() == anchor.tolist()  # type: ignore[operator]
    assert (net.anchor is alias) == (anchor[0] == 1)


@pytest.mark.parametrize("names", [("newest", "rows"), ("rows", "newest")])
def test_what_is_one_here_and_is_to_hold_two_things_is_put_apart(names: tuple[str, str]) -> None:
    owner: Any = SimpleNamespace(rows=[[1.0], torch.ones(2)], first=0, newest=0)
    owner.newest, owner.first = owner.rows[1], owner.rows[0]
    state = {"rows": [[2.0], torch.zeros(2)], "first": [3.0], "newest": torch.full((2,), 2.0)}
    filling = Filling()
    for name in (*names, "first"):
        filling.put(owner, name, state[name])
    assert (owner.rows[0], owner.first) == ([2.0], [3.0])
    assert (owner.rows[1].tolist(), owner.newest.tolist()) == ([0.0, 0.0], [2.0, 2.0])


@pytest.mark.parametrize("names", [("parts", "whole"), ("whole", "parts")])
def test_parts_of_one_memory_stay_parts_of_it(names: tuple[str, str]) -> None:
    owner: Any = SimpleNamespace(whole=torch.zeros(4), parts=[])
    owner.parts = [owner.whole[:2], owner.whole[2:]]
    whole, parts = owner.whole, [*owner.parts]
    state = {"whole": torch.arange(4.0), "parts": [torch.arange(2.0), torch.arange(2.0, 4.0)]}
    filling = Filling()
    for name in names:
        filling.put(owner, name, state[name])
    assert owner.whole is whole
    assert [a is b for a, b in zip(owner.parts, parts, strict=True)] == [True, True]
    assert whole.tolist() == [0.0, 1.0, 2.0, 3.0]
