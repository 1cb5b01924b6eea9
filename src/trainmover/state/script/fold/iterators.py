# SPDX-License-Identifier: Apache-2.0
"""Iterators of Python's own containers: how much they have still to give, and of that the plain
values that come next. None is moved for that: `__reduce__` tells.
"""

import operator
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from trainmover.state import sets
from trainmover.state.script.fold.kinds import PLAIN

Inside = Callable[[object], Any]
COMING = 64
LISTED_MAX = 2048
"""Of a dict or a set what comes is listed as a whole: not if there is more than that."""
_LATIN = "\N{LATIN SMALL LETTER E WITH ACUTE}"  # Other texts may have an iterator of another kind.
_CONTAINERS = frozenset({list, tuple, str, bytes, bytearray, range, deque})
"""Which run none of the script's code as they are read."""
_TABLE: dict[Any, Any] = {}
_DEQUE, _SET = deque[Any](), set[Any]()
_VIEWS: tuple[Any, ...] = (_TABLE, _TABLE.values(), _TABLE.items())
_SEQUENCES: tuple[Any, ...] = (
    *((), [], "", _LATIN, b"", bytearray()),
    *(range(0), range(1 << 70)),
)
_BACKWARDS = (type(reversed([*_SET])), type(reversed((*_SET,))))
_OF_DEQUES: dict[type, Callable[[Any], Any]] = {
    type(iter(_DEQUE)): iter,
    type(reversed(_DEQUE)): reversed,
}
_OF_SETS = type(iter(_SET))
_OF_TABLES = (_OF_SETS, *(type(iter(one)) for one in _VIEWS), *(type(reversed(o)) for o in _VIEWS))
PLACED = (*_OF_TABLES, *_OF_DEQUES, *_BACKWARDS, *(type(iter(one)) for one in _SEQUENCES))
"""Iterators that tell how much is left."""


def placed(value: Any, inside: Inside) -> Any:
    """How much is left, and what comes next."""
    try:
        left = operator.length_hint(value)
    except OverflowError:  # More than any container has: a range of that length tells it all.
        return [repr(value.__reduce__()[1:])]
    if not left or type(value) not in PLACED:
        return left
    coming = _coming(value, left)
    if type(coming) is range:
        return [left, inside(coming)]
    if not PLAIN.issuperset(map(type, coming)):
        coming = [*map(_known, coming)]
    if type(value) is _OF_SETS and not sets.is_ordered(coming):
        coming = sorted(coming, key=repr)
    return [left, inside([*coming])]


def _coming(value: Any, left: int) -> Any:
    """A range, a text or a list."""
    kind = type(value)
    if kind in _OF_TABLES:
        return value.__reduce__()[1][0] if left <= LISTED_MAX else []
    _, (whole, *rest), *later = value.__reduce__()
    if type(whole) not in _CONTAINERS:
        return []
    at = next((one for one in (*rest, *later) if type(one) is int), 0)
    if kind in _OF_DEQUES:
        return [*islice(_OF_DEQUES[kind](whole), at, at + COMING)]
    if kind in _BACKWARDS:
        return whole[max(0, at - COMING + 1) : at + 1]
    return whole[at:] if type(whole) is range else whole[at : at + COMING]


def _known(value: Any) -> Any:
    """Itself, if it is plain, or a tuple of such; None: what it holds may change."""
    kind = type(value)
    if kind in PLAIN or (kind is tuple and all(type(one) in PLAIN for one in value)):
        return value
    return None
