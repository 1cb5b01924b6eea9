# SPDX-License-Identifier: Apache-2.0
"""Of a time only whether it is there, and of a container of times how many: what time it is differs
on all machines, but where something is decided by whether there is one yet, all are to agree.

Two times are equal here, whatever they are. What a variable begins with, as long as it has no time,
is told by itself: None, 0, -1, infinity.
"""

import math
from collections import deque
from itertools import islice
from typing import Any

import xxhash

_ROWS = (list, tuple, deque)
_TABLE_OR_ROW = (dict, *_ROWS)
_SETS = (set, frozenset)
_BEGINNINGS = (0, -1, math.inf, -math.inf)
_ITEMS_MAX, _DEPTH_MAX = 4096, 4
_A_TIME = "a time"


def entry_of(value: object) -> list[Any]:
    """Hash, text for people; no content, since there is nothing that could be put."""
    shape = _shape(value, 0)
    digest = xxhash.xxh3_64_digest(repr(shape).encode("utf8", "surrogatepass"))
    return [digest, _text(value, shape), b"", True]


def is_of_there(entry: Any) -> bool:
    return type(entry) is list and len(entry) > 3


def _shape(value: Any, depth: int) -> Any:
    """Times are all one."""
    if isinstance(value, _SETS):
        return ["set", len(value)]
    if isinstance(value, _TABLE_OR_ROW) and depth < _DEPTH_MAX:
        parts = value.values() if isinstance(value, dict) else value
        keys = sorted(map(repr, value)) if isinstance(value, dict) else []
        return [len(value), keys, [_shape(one, depth + 1) for one in islice(parts, _ITEMS_MAX)]]
    return _beginning(value)


def _beginning(value: Any) -> str:
    if value is None or value is False or value == "" or value == b"":
        return repr(value)
    if isinstance(value, int | float) and (value in _BEGINNINGS or value != value):
        return str(float(value))
    return _A_TIME


def _text(value: Any, shape: Any) -> str:
    if isinstance(shape, str):
        return shape
    return f"a {type(value).__name__} of {len(value)}"
