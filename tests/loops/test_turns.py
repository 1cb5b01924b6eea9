"""Loops of the extension and of Python: what a runtime can read, set and repeat."""

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trainmover import asked, loops
from trainmover.loops.rewrite import rewrite
from trainmover.loops.turns import (
    Collector,
    Loop,
    PlainLoop,
    PlainTurns,
    Retry,
    delegate,
    iterate,
    plain_iterate,
    plain_repeat,
    repeat,
    set_hooks,
)

LOOPS = pytest.mark.parametrize("kind", [iterate, PlainLoop])
TURNS = pytest.mark.parametrize("kind", [repeat, PlainTurns])
BOTH = pytest.mark.parametrize("kinds", [(iterate, repeat), (plain_iterate, plain_repeat)])


@pytest.fixture(autouse=True)
def no_hooks() -> Iterator[None]:
    yield
    set_hooks()


def mark(loop: Any) -> None:
    loop.is_transaction = True


def test_the_extension_has_the_loops() -> None:
    assert (Loop is PlainLoop) != asked.is_in_c("Loop")


@LOOPS
def test_a_loop_gives_what_its_iterable_gives(kind: Any) -> None:
    loop = kind([1, 2])
    assert (iter(loop) is loop, loop.turn_count, next(loop), loop.turn_count) == (True, 0, 1, 1)
    assert (loop.is_transaction, loop.is_repeat, loop.has_ended, loop.again()) == (False,) * 4
    assert not hasattr(loop, "item")
    assert [*loop] == [2]
    assert (loop.turn_count, loop.has_ended, [*loop.iterator], [*loop]) == (2, True, [], [])


@LOOPS
def test_what_is_no_iterable_is_refused_as_by_a_for(kind: Any) -> None:
    with pytest.raises(TypeError, match="'int' object is not iterable"):
        kind(3)
    for args in ((), (1, 2)):
        with pytest.raises(TypeError):
            kind(*args)
    with pytest.raises(TypeError):
        kind(iterable=())


@LOOPS
def test_a_position_is_set_by_exchanging_the_iterator(kind: Any) -> None:
    loop = kind(range(3))
    next(loop)
    loop.iterator = iter("xy")
    loop.turn_count = 7
    assert [*loop] == ["x", "y"]
    assert loop.turn_count == 9
    for bad in (3, None, [1]):
        with pytest.raises(TypeError, match="is set to an iterator"):
            loop.iterator = bad


@LOOPS
def test_the_iterator_may_be_exchanged_while_it_is_asked(kind: Any) -> None:
    def items() -> Iterator[str]:
        loop.iterator = iter("b")
        yield "a"

    loop = kind(items())
    assert [*loop] == ["a", "b"]
    ended = kind(())

    def last() -> Iterator[str]:
        ended.iterator = iter("cd")
        return
        yield

    ended.iterator = last()
    assert [*ended] == []
    assert [*ended.iterator] == ["c", "d"]


@LOOPS
def test_an_error_passes_and_the_loop_goes_on(kind: Any) -> None:
    class Items:
        number = 0

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            self.number += 1
            if self.number == 2:
                raise KeyError(2)
            if self.number == 4:
                raise StopIteration("value")
            return self.number

    loop = kind(Items())
    assert next(loop) == 1
    with pytest.raises(KeyError):
        next(loop)
    assert (loop.turn_count, next(loop)) == (1, 3)
    with pytest.raises(StopIteration) as caught:
        next(loop)
    assert caught.value.value == "value"
    assert loop.has_ended


@LOOPS
def test_an_exhausted_loop_lets_go_of_its_iterator_and_item(kind: Any) -> None:
    class Item:
        pass

    loop = kind(Item() for _ in range(1))
    loop.is_transaction = True
    kept = weakref.ref(next(loop)), weakref.ref(loop.iterator)
    assert kept[0]() is loop.item
    assert next(loop, "end") == "end"
    assert (kept[0](), kept[1](), hasattr(loop, "item")) == (None, None, False)


@LOOPS
def test_a_loop_that_is_no_transaction_keeps_no_item(kind: Any) -> None:
    class Item:
        pass

    loop = kind([Item(), Item()].__iter__())
    loop.is_transaction = True
    kept = weakref.ref(next(loop))
    loop.iterator = iter(())
    assert kept() is not None
    loop.again()
    loop.is_transaction = False
    assert (kept(), loop.is_repeat) == (None, False)


@LOOPS
def test_a_loop_in_a_cycle_is_collected(kind: Any) -> None:
    class Items(list[Any]):
        pass

    items = Items([1])
    items.append(kind(items))
    kept = weakref.ref(items)
    del items
    gc.collect()
    assert kept() is None


@LOOPS
def test_a_transaction_gives_its_item_again(kind: Any) -> None:
    loop = kind([None, 1])
    loop.is_transaction = True
    assert not loop.again()
    assert next(loop) is None
    assert loop.again()
    assert loop.is_repeat
    assert next(loop) is None
    assert (loop.is_repeat, loop.turn_count, next(loop)) == (False, 1, 1)
    loop.item = 5
    loop.is_repeat = True
    assert next(loop) == 5
    del loop.item
    loop.is_repeat = True
    assert next(loop, "end") == "end"


@TURNS
def test_turns_count_and_repeat(kind: Any) -> None:
    turns = kind()
    assert (iter(turns) is turns, next(turns) is turns, turns.turn_count) == (True, True, 1)
    assert not turns.again()
    turns.is_transaction = True
    assert turns.again()
    assert (next(turns).turn_count, next(turns).turn_count) == (1, 2)
    turns.end()
    assert (turns.has_ended, next(turns, None), turns.turn_count) == (True, None, 2)
    turns.has_ended = False
    assert next(turns) is turns
    with pytest.raises(TypeError):
        kind(1)


@BOTH
def test_flags_are_truths_and_stay(kinds: Any) -> None:
    for loop in (kinds[0](()), kinds[1]()):
        for name in ("is_transaction", "is_repeat", "has_ended"):
            setattr(loop, name, True)
            assert getattr(loop, name) is True
            setattr(loop, name, False)
            assert getattr(loop, name) is False
        with pytest.raises(AttributeError):
            loop.other = 1


@BOTH
def test_the_runtime_is_called_as_loops_begin_and_before_turns_of_transactions(kinds: Any) -> None:
    seen: list[Any] = []
    set_hooks(begin=lambda loop: seen.append(("begin", loop)), turn=lambda loop: seen.append(loop))
    for make in (lambda: kinds[0]("ab"), kinds[1]):
        loop = make()
        assert seen == [("begin", loop)]
        next(loop)
        loop.is_transaction = True
        next(loop)
        assert seen[1:] == [loop]
        seen.clear()
    set_hooks()
    next(kinds[0]("a"))
    assert seen == []


@BOTH
def test_the_runtime_may_end_repeat_and_restore_before_a_turn(kinds: Any) -> None:
    orders: list[Any] = [None, "again", "restore", "end"]

    def turn(loop: Any) -> None:
        order = orders.pop(0)
        if order == "again":
            loop.again()
        elif order == "restore":
            loop.iterator, loop.turn_count = iter("xyz"), 5
        elif order == "end":
            loop.end()

    set_hooks(begin=mark, turn=turn)
    loop = kinds[0]("abc")
    assert [*loop] == ["a", "a", "x"]
    assert (loop.turn_count, orders) == (6, [])


@BOTH
def test_what_the_runtime_raises_leaves_the_loop(kinds: Any) -> None:
    def fail(loop: Any) -> None:
        raise Retry

    set_hooks(begin=fail)
    for kind, args in zip(kinds, [("ab",), ()], strict=True):
        with pytest.raises(Retry):
            kind(*args)
    set_hooks(begin=mark, turn=fail)
    for kind, args in zip(kinds, [("ab",), ()], strict=True):
        with pytest.raises(Retry):
            next(kind(*args))


@LOOPS
def test_retry_from_the_iterator_has_it_asked_again(kind: Any) -> None:
    asked_for: list[int] = []

    def items() -> Iterator[int]:
        asked_for.append(len(asked_for))
        if len(asked_for) < 3:
            loop.iterator = items()
            raise Retry
        yield 7

    loop = kind(())
    loop.iterator = items()
    with pytest.raises(Retry):
        next(loop)
    loop.is_transaction = True
    assert [*loop] == [7]
    assert asked_for == [0, 1, 2]


PROGRAM = """
def by_for(items, body):
    for x in items:
        with block(x):
            trace.append(x)
            if x == 1: continue
            body(x)
    else:
        trace.append("else")
def by_while(items, body):
    it = iter(items)
    while (x := next(it, None)) is not None:
        trace.append(x)
        body(x)
        items.done = x
def nested(items, body):
    for e in range(2):
        for x in items:
            for _ in range(2):
                body(x)
"""


def _functions(kinds: Any, trace: list[Any]) -> SimpleNamespace:
    import contextlib

    names: dict[str, Any] = {"trace": trace, "block": contextlib.nullcontext}
    code = rewrite(PROGRAM.encode(), "<retry>").code
    assert code is not None
    exec(code, names)
    names["__tm__"] = SimpleNamespace(
        **{name: getattr(loops, name) for name in loops.__all__}
        | {"iterate": kinds[0], "repeat": kinds[1]}
    )
    return SimpleNamespace(**names)


@BOTH
def test_retry_in_the_body_repeats_the_turn_with_the_same_item(kinds: Any) -> None:
    trace: list[Any] = []
    left = {0: 1, 2: 3}

    def body(x: int) -> None:
        if left.get(x):
            left[x] -= 1
            raise Retry

    set_hooks(begin=mark)
    _functions(kinds, trace).by_for((x for x in range(4)), body)
    assert trace == [0, 0, 1, 2, 2, 2, 2, 3, "else"]


@BOTH
def test_retry_in_a_while_evaluates_the_test_again(kinds: Any) -> None:
    class Source:
        """A fetch that gives the same again until a turn is done."""

        done = 0

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            if self.done == 3:
                raise StopIteration
            return self.done + 1

    trace: list[Any] = []
    failures = [2, 3]

    def body(x: int) -> None:
        if x in failures:
            failures.remove(x)
            raise Retry

    set_hooks(begin=mark)
    _functions(kinds, trace).by_while(Source(), body)
    assert trace == [1, 2, 2, 3, 3]


@BOTH
def test_retry_reaches_the_loop_that_is_the_transaction(kinds: Any) -> None:
    begun: list[Any] = []
    calls: list[str] = []

    def begin(loop: Any) -> None:
        begun.append(loop)
        if isinstance(loop, Loop | PlainLoop) and len(begun) == 2:
            loop.is_transaction = True

    def body(x: str) -> None:
        calls.append(x)
        if len(calls) == 4:
            raise Retry

    set_hooks(begin=begin)
    _functions(kinds, []).nested("ab", body)
    assert "".join(calls) == "aabb" + "bb" + "aabb"


@BOTH
def test_retry_passes_loops_that_are_no_transaction(kinds: Any) -> None:
    def body(x: int) -> None:
        raise Retry

    functions = _functions(kinds, [])
    for function in (functions.by_for, functions.by_while, functions.nested):
        with pytest.raises(Retry):
            function([2, 3], body)


def test_a_collector_holds_its_list_until_it_is_taken() -> None:
    collector = Collector([1, 2])
    made = [collector.append(x) for x in collector]  # type: ignore[misc]
    assert collector.items == [1, 2]
    assert collector.take(made) == [1, 2]
    assert (collector.items, collector.loop, [*collector]) == (None, None, [])


def test_only_what_has_no_send_throw_or_close_is_iterated_by_a_loop(tmp_path: Any) -> None:
    generator = (x for x in "ab")
    assert delegate(generator) is generator
    assert isinstance(delegate([1]), Loop)
    assert isinstance(delegate(iter([1])), Loop)
    with open(tmp_path / "file", "w+") as file:
        assert iter(delegate(file)) is file
