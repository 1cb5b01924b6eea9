# SPDX-License-Identifier: Apache-2.0
"""Iterators that stand in the loops of rewritten code, so that a loop's position is a variable.

CPython keeps the iterator of a loop on the value stack of its frame, where nothing can read or set
it. Rewritten code (`rewrite.py`) iterates over a `Loop`, which `iterate` makes, or for a `while`
over `Turns`, which `repeat` makes, and binds it to a local variable. The attributes below can be
read and set like any others.

turn_count      turns that have begun; a turn that is repeated counts once
iterator        the iterator below a `Loop`; an empty one once it is exhausted
has_ended       the loop gives no more turns: it is exhausted, or `end` was called
is_transaction  the runtime repeats turns of this loop; set by the runtime
is_repeat       the next turn is the last one again
item            what the turn under way of a `Loop` got; only in a transaction, else unset

A turn of a loop that is no transaction costs one test of a flag. Before each turn of a transaction
the runtime is called (`set_hooks`): it may wait there, restore state, end the loop, or have the
last turn repeated. `Retry` in the body of a transaction repeats the turn: a `for` gets the same
item again, a `while` evaluates its test again. `Retry` from the iterator below has it asked again.

The extension has both types; the classes in Python are the reference, and serve without it.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from types import CoroutineType, FrameType, GeneratorType
from typing import TYPE_CHECKING, Any

from trainmover.asked import is_in_c
from trainmover.errors import Unwind

_begin: Callable[[Any], object] | None = None
_turn: Callable[[Any], object] | None = None
_left: Callable[[int], object] | None = None
_goes_on: Callable[[FrameType, int], bool] | None = None
_ends_turn: Callable[[], tuple[type[BaseException], ...]] | None = None


class Retry(BaseException):
    """Abort of a step that is run again.

    Not an Exception: `except Exception` in a script lets it pass.
    """


class PlainTurns:
    """Iterator of a rewritten `while`; gives itself."""

    __slots__ = ("has_ended", "is_repeat", "is_transaction", "turn_count")

    def __init__(self) -> None:
        self.turn_count = 0
        self.is_transaction = self.is_repeat = self.has_ended = False
        if _begin is not None:
            _begin(self)

    def __iter__(self) -> "PlainTurns":
        return self

    def __next__(self) -> "PlainTurns":
        _enter(self)
        if self.is_repeat:
            self.is_repeat = False
        else:
            self.turn_count += 1
        return self

    def again(self) -> bool:
        """Repeat the last turn next, if this loop is a transaction; return whether it is."""
        self.is_repeat = self.is_repeat or self.is_transaction
        return self.is_transaction

    def end(self) -> None:
        """Give no further turn."""
        self.has_ended = True


class PlainLoop:
    """Iterator of a rewritten `for`. Raises TypeError for what cannot be iterated."""

    __slots__ = ("_below", "_is_transaction", "has_ended", "is_repeat", "item", "turn_count")

    item: Any

    def __init__(self, iterable: Iterable[Any], /) -> None:
        self._below = iter(iterable)
        self.turn_count = 0
        self._is_transaction = self.is_repeat = self.has_ended = False
        if _begin is not None:
            _begin(self)

    @property
    def iterator(self) -> Iterator[Any]:
        return self._below

    @iterator.setter
    def iterator(self, value: Iterator[Any]) -> None:
        if not hasattr(value, "__next__"):
            raise TypeError("the iterator of a loop is set to an iterator")
        self._below = value

    @property
    def is_transaction(self) -> bool:
        return self._is_transaction

    @is_transaction.setter
    def is_transaction(self, value: bool) -> None:
        self._is_transaction = value
        if not value:
            self.is_repeat = False
            self._drop_item()

    def __iter__(self) -> "PlainLoop":
        return self

    def __next__(self) -> Any:
        while True:
            _enter(self)
            if self.is_repeat:
                self.is_repeat = False
                if hasattr(self, "item"):
                    return self.item
            iterator = self._below
            try:
                item = next(iterator)
            except StopIteration:
                self.has_ended = True
                self._drop_item()
                if self._below is iterator:
                    self._below = iter(())
                raise
            except Retry:
                if not self._is_transaction:
                    raise
                continue
            self.turn_count += 1
            if self._is_transaction:
                self.item = item
            return item

    def again(self) -> bool:
        """Give the last item again next, if it was kept; return whether it was."""
        if not self._is_transaction or not hasattr(self, "item"):
            return False
        self.is_repeat = True
        return True

    def end(self) -> None:
        """Give no further item."""
        self.has_ended = True

    def _drop_item(self) -> None:
        if hasattr(self, "item"):
            del self.item


def _enter(loop: PlainTurns | PlainLoop) -> None:
    if loop.is_transaction and _turn is not None:
        _turn(loop)
    if loop.has_ended:
        raise StopIteration


def plain_iterate(iterable: Iterable[Any], /) -> PlainLoop:
    """Make the iterator of a `for`. Raises TypeError for what cannot be iterated."""
    return PlainLoop(iterable)


def plain_repeat() -> PlainTurns:
    """Make the iterator of a `while`."""
    return PlainTurns()


def plain_left(line: int, /) -> None:
    """Tell that the script has left the loop with its header on this line, however that was."""
    if _left is not None:
        _left(line)


if TYPE_CHECKING or is_in_c("Turns"):
    from trainmover._native import Loop, Turns, iterate, left, repeat
else:
    Loop, Turns = PlainLoop, PlainTurns
    iterate, repeat, left = plain_iterate, plain_repeat, plain_left

KINDS = (Loop, Turns, PlainLoop, PlainTurns)
"""Types of the objects that rewritten loops iterate over."""

AnyLoop = Loop | Turns | PlainLoop | PlainTurns


def set_hooks(
    *,
    begin: Callable[[Any], object] | None = None,
    turn: Callable[[Any], object] | None = None,
    left: Callable[[int], object] | None = None,
) -> None:
    """Call the runtime of this process from its loops; without arguments, call nothing.

    begin  called with each loop as it begins; may set its attributes
    left   called with the line of each loop's header, as the script leaves it
    turn   called with a loop before each of its turns, if the loop is a transaction. What it raises
           leaves the loop from its header, so `Retry` reaches the next loop outside.
    """
    global _begin, _turn, _left
    _begin, _turn, _left = begin, turn, left
    if is_in_c("Turns"):
        import_module("trainmover._native").set_hooks(begin, turn, left, Retry)


def set_way_back(
    goes_on: Callable[[FrameType, int], bool] | None,
    ends_turn: Callable[[], tuple[type[BaseException], ...]] | None = None,
) -> None:
    """Ask the runtime of this process which loop goes on, where an exception has left its body.

    goes_on    called with the loop's frame and the line of its header
    ends_turn  returns the exceptions of which that is asked, as one is raised; None: `Unwind`
    """
    global _goes_on, _ends_turn
    _goes_on, _ends_turn = goes_on, ends_turn


def goes_on(line: int) -> bool:
    """Return whether the loop with its header on this line goes on with another turn."""
    return _goes_on is not None and _goes_on(sys._getframe(1), line)


def ends_turn() -> tuple[type[BaseException], ...]:
    """Return the exceptions behind which a loop may go on. Asked only as one is raised."""
    return (Unwind,) if _ends_turn is None else _ends_turn()


class Collector:
    """List comprehension under way: its list and its loop are variables.

    Rewritten code has `(c := Collector(IT)).take([c.append(E) for T in c])` for `[E for T in IT]`.
    """

    __slots__ = ("append", "items", "loop")

    def __init__(self, iterable: Iterable[Any]) -> None:
        self.loop: Loop | None = iterate(iterable)
        self.items: list[Any] | None = []
        self.append: Callable[[Any], None] | None = self.items.append

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loop or ())

    def take(self, _: list[None], /) -> list[Any] | None:
        """Return the list, and let go of it."""
        items = self.items
        self.loop = self.items = self.append = None
        return items


def delegate(iterable: Any) -> Any:
    """Return what `yield from` is to iterate over: a `Loop`, where that makes no difference.

    An iterator with `send`, `throw` or `close` stays as it is, since `yield from` passes them on
    (PEP 380). Where it stands can be seen at a suspended generator (`gi_yieldfrom`).
    """
    if isinstance(iterable, GeneratorType | CoroutineType):
        return iterable
    iterator = iter(iterable)
    passes_on = any([hasattr(iterator, name) for name in ("send", "throw", "close")])
    return _Iterable(iterator) if passes_on else iterate(_Iterable(iterator))


class _Iterable:
    """Source of this iterator, whose own `__iter__` is not called a second time."""

    __slots__ = ("iterator",)

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator

    def __iter__(self) -> Any:
        return self.iterator


set_hooks()

__all__ = [
    "KINDS",
    "AnyLoop",
    "Collector",
    "Loop",
    "PlainLoop",
    "PlainTurns",
    "Retry",
    "Turns",
    "Unwind",
    "delegate",
    "ends_turn",
    "goes_on",
    "iterate",
    "left",
    "plain_iterate",
    "plain_left",
    "plain_repeat",
    "repeat",
    "set_hooks",
    "set_way_back",
]
