# SPDX-License-Identifier: Apache-2.0
"""The order in which a set gives what is in it, which scripts calculate with: `for i in self.hard`.

It is that of the set's table. Where an entry lies there depends on its hash, and on all that was
ever put in and taken out: equal sets need not have equal orders, nor a copy that of its original.
So a set is put back, or made anew elsewhere, with its table, which the extension knows. Without it
entries are put in one behind the other, and some sets come out in another order.

Hashes of numbers and texts are the same in all processes of a job (`PYTHONHASHSEED`); those of
most objects are addresses, and the order of such is chance.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Union

from trainmover.asked import is_in_c

S = TypeVar("S", "set[Any]", "frozenset[Any]")
AnySet = Union["set[Any]", "frozenset[Any]"]


class Content(NamedTuple):
    """entries  in order
    table     the extension's word for where they lie; empty: it has none
    """

    entries: list[Any]
    table: tuple[int, int, list[int], list[int]] | tuple[()] = ()


def content_of(value: AnySet) -> Content:
    """Nothing of its own code is run."""
    kind: Any = set if isinstance(value, set) else frozenset
    return Content([*kind.__iter__(value)], _table_of(value))


def put_in(held: "set[Any]", content: Content) -> None:
    """Have it hold that, in that order."""
    if content.table and _fill(held, *content.table, content.entries):
        return
    set.clear(held)
    set.update(held, content.entries)


def made(kind: type[S], content: Content) -> S:
    """A new one. Raises ValueError for entries of which two are equal."""
    plain = kind(content.entries)
    if len(plain) != len(content.entries):
        raise ValueError("a set with two equal entries")
    empty = kind()
    return empty if content.table and _fill(empty, *content.table, content.entries) else plain


def _hashes_alike(value: object) -> bool:
    kind = type(value)
    if kind is tuple:
        return all(map(_hashes_alike, value))  # type: ignore[call-overload]
    if kind is float:
        return not math.isnan(value)  # type: ignore[arg-type]
    return kind in (int, str, bytes, bool)


KEPT = is_in_c("fill")
"""Whether the order is known, and can be had elsewhere."""

if TYPE_CHECKING or KEPT:
    from trainmover._native import fill as _fill
    from trainmover._native import table_of as _table_of
else:

    def _table_of(value: AnySet) -> tuple[()]:
        return ()

    def _fill(*_: object) -> bool:
        return False
