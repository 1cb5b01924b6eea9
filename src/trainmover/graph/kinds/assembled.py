# SPDX-License-Identifier: Apache-2.0
"""Objects that are given by their parts: a new one of the same parts is as good as the live one."""

import datetime
import decimal
import fractions
import pathlib
import re
import types
import uuid
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy

from trainmover.graph.kinds.kind import HOLE, MISSING, Body, Kind, is_same_part, item
from trainmover.graph.nodes import Path

if TYPE_CHECKING:
    from trainmover.graph.restore import Restore
    from trainmover.graph.walk import Walk

Parts = tuple[Any, ...]


class Assembled(Kind):
    """Instances of some types, as tuples of parts.

    types  what it describes
    parts  takes an instance apart
    make   puts parts together; it may return HOLE
    """

    def __init__(
        self,
        name: str,
        types: Iterable[type],
        parts: Callable[[Any], Parts],
        make: Callable[..., Any],
    ) -> None:
        self.name, self.types = name, frozenset(types)
        self._parts, self._make = parts, make

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        return ([walk.ref(one, path, item(n)) for n, one in enumerate(self._parts(obj))],)

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        (refs,) = body
        known = type(live) in self.types
        old = self._parts(live) if known else ()
        new = [restore.get(one, old[n] if n < len(old) else MISSING) for n, one in enumerate(refs)]
        if known and len(old) == len(new) and all(map(is_same_part, old, new)):
            return restore.take(ref, live)
        made = HOLE if any(one is HOLE for one in new) else self._make(*new)
        if made is not HOLE:
            return restore.take(ref, made)
        return live if known else HOLE


def _method_in_c(owner: Any, name: str) -> Any:
    return getattr(owner, name, HOLE)


def _descriptor(obj: Any) -> Parts:
    functions = (obj.fget, obj.fset, obj.fdel) if type(obj) is property else (obj.__func__,)
    return type(obj), *functions


_DESCRIPTORS = frozenset({staticmethod, classmethod, property})


def _weak(target: Any = None) -> Any:
    return HOLE if target is None else weakref.ref(target)


def _match(pattern: Any, text: Any, start: int, end: int, first: int, last: int) -> Any:
    """Return the match that the same search finds."""
    if not isinstance(pattern, re.Pattern):
        return HOLE
    for search in (pattern.search, pattern.match, pattern.fullmatch):
        found = search(text, start, end)
        if found is not None and found.span() == (first, last):
            return found
    return HOLE


ASSEMBLED = (
    Assembled(
        "method",
        [types.MethodType],
        lambda method: (method.__func__, method.__self__),
        types.MethodType,
    ),
    Assembled(
        "builtin-method",
        [types.BuiltinFunctionType],
        lambda method: (method.__self__, method.__name__),
        _method_in_c,
    ),
    Assembled(
        "descriptor",
        _DESCRIPTORS,
        _descriptor,
        lambda kind, *functions: kind(*functions) if kind in _DESCRIPTORS else HOLE,
    ),
    Assembled(
        "weakref", [weakref.ReferenceType, weakref.WeakMethod], lambda weak: (weak(),), _weak
    ),
    Assembled(
        "numpy-generator",
        [numpy.random.Generator],
        lambda generator: (generator.bit_generator,),
        numpy.random.Generator,
    ),
    Assembled(
        "match",
        [re.Match],
        lambda match: (match.re, match.string, match.pos, match.endpos, *match.span()),
        _match,
    ),
    Assembled("range", [range], lambda v: (v.start, v.stop, v.step), range),
    Assembled("slice", [slice], lambda v: (v.start, v.stop, v.step), slice),
    Assembled("pattern", [re.Pattern], lambda v: (v.pattern, v.flags), re.compile),
    Assembled("uuid", [uuid.UUID], lambda v: (v.int,), lambda number: uuid.UUID(int=number)),
    Assembled("date", [datetime.date], lambda v: (v.year, v.month, v.day), datetime.date),
    Assembled(
        "time",
        [datetime.time],
        lambda v: (v.hour, v.minute, v.second, v.microsecond, v.tzinfo),
        datetime.time,
    ),
    Assembled(
        "datetime",
        [datetime.datetime],
        lambda v: (*v.timetuple()[:6], v.microsecond, v.tzinfo),
        datetime.datetime,
    ),
    Assembled(
        "timedelta",
        [datetime.timedelta],
        lambda v: (v.days, v.seconds, v.microseconds),
        datetime.timedelta,
    ),
    Assembled("timezone", [datetime.timezone], lambda v: v.__getinitargs__(), datetime.timezone),
    Assembled("decimal", [decimal.Decimal], lambda v: (str(v),), decimal.Decimal),
    Assembled(
        "fraction",
        [fractions.Fraction],
        lambda v: (v.numerator, v.denominator),
        fractions.Fraction,
    ),
    Assembled("path", [pathlib.PosixPath], lambda v: (str(v),), pathlib.PosixPath),
    Assembled("pure-path", [pathlib.PurePosixPath], lambda v: (str(v),), pathlib.PurePosixPath),
)
