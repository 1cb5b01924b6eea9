"""Sets that are put back, or made elsewhere, in the order that they had."""

import random
import string
from collections.abc import Callable
from typing import Any

import pytest

from trainmover.asked import is_in_c
from trainmover.errors import ProtocolError
from trainmover.state import sets
from trainmover.state.encode import decode, encode, split
from trainmover.state.kinds.filling import filled

in_c = pytest.mark.skipif(not is_in_c("fill"), reason="the extension is not built, or of the ABI")


def number(rng: random.Random) -> int:
    return rng.randrange(10**6) - 1000


def text(rng: random.Random) -> str:
    return "".join(rng.choices(string.ascii_lowercase, k=3))


def change(held: "set[Any]", rng: random.Random, one: Callable[[random.Random], Any]) -> list[Any]:
    """As scripts do, with what came of it."""
    seen = []
    for _ in range(rng.randrange(80)):
        what = rng.random()
        if what < 0.6:
            held.add(one(rng))
        elif what < 0.8:
            held.discard(one(rng))
        elif held:
            seen.append(held.pop())
        seen.append([*held])
    return seen


def history(seed: int, one: Callable[[random.Random], Any]) -> "set[Any]":
    rng = random.Random(seed)
    held: set[Any] = set()
    change(held, rng, one)
    if seed % 3 == 0:
        held = set(held)
    if seed % 5 == 0:
        held -= {*list(held)[::3]}
    change(held, rng, one)
    return held


@in_c
@pytest.mark.parametrize("one", [number, text])
def test_a_set_is_made_anew_and_goes_on_as_the_first_one_would(
    one: Callable[[random.Random], Any],
) -> None:
    for seed in range(400):
        first = history(seed, one)
        content = sets.content_of(first)
        back = {object(), 1}
        sets.put_in(back, content)
        others = [sets.made(set, content), decode(encode(first)), back]
        assert all([*other] == [*first] for other in others)
        after = [change(held, random.Random(-seed), one) for held in [first, *others]]
        assert after[1:] == [after[0]] * 3


@in_c
def test_a_frozenset_keeps_its_order() -> None:
    for seed in range(200):
        frozen = frozenset(history(seed, number))
        assert [*decode(encode(frozen))] == [*frozen]


@in_c
def test_a_set_that_others_hold_gets_the_order_too() -> None:
    theirs, held = history(7, text), {"a"}
    assert filled(held, theirs)
    assert [*held] == [*theirs]


def test_without_the_extension_a_set_gets_what_it_is_to_hold() -> None:
    held = {1, 2, 3}
    sets.put_in(held, sets.Content([9, 8, 7]))
    assert held == {7, 8, 9}
    assert sets.made(frozenset, sets.Content(["a", "b"])) == frozenset({"a", "b"})


@pytest.mark.parametrize(
    "table",
    [
        (7, 0, [1, 2], []),
        (0, 0, [1, 2], []),
        (-8, 0, [1, 2], []),
        (1 << 40, 0, [1, 2], []),
        (1 << 25, 0, [1, 2], []),
        (8, -1, [1, 2], []),
        (8, 0, [2, 1], []),
        (8, 0, [1, 9], []),
        (8, 0, [1, 2, 3], []),
        (8, 0, [1, 2], [2]),
        (8, 0, [1, 2], [0, 3, 4, 5, 6, 7]),
        (8, 0, [1, "2"], []),
        (8, 0, [1, 1 << 70], []),
        (8, 0, [3, 6], []),  # Where Python does not look for them.
    ],
)
def test_entries_that_cannot_lie_so_are_put_in_all_the_same(table: Any) -> None:
    held: set[Any] = {5}
    sets.put_in(held, sets.Content([1, 2], table))
    assert held == {1, 2}
    held.add(3)
    held.discard(1)
    assert held == {2, 3}
    assert sets.made(frozenset, sets.Content([1, 2], table)) == frozenset({1, 2})


@in_c
def test_an_entry_that_cannot_be_hashed_is_said() -> None:
    held: set[Any] = {5}
    with pytest.raises(TypeError, match="unhashable"):
        sets.put_in(held, sets.Content([[], 2], (8, 0, [1, 2], [])))
    assert held == set()


def test_bytes_with_an_entry_twice_are_none_of_a_set() -> None:
    good = encode({1, 2})
    with pytest.raises(ProtocolError, match="equal entries"):
        decode(good.replace(b"\x92\x01\x02", b"\x92\x01\x01", 1))


def test_equal_sets_have_equal_canonical_bytes() -> None:
    one, other = {8, 0}, {0, 8}
    assert [*one] != [*other]
    assert split(one, canonical=True) == split(other, canonical=True)
