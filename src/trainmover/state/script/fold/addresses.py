"""Whether a dict is by `id(...)` or `data_ptr()`.

Its keys are others in each process then, and what it holds counts, in its order. Numbers that only
look like such are keys as any others.
"""

import gc
from collections.abc import Callable, Iterable, Set
from typing import Any

_ADDRESSES = range(1 << 40, 1 << 48, 16)
"""Where objects and memory of tensors lie in a process on 64-bit Linux, with a margin."""
_LOOKS_MAX = 8


class Addresses:
    """Of one search. It goes through all live objects so many times; keys of which nothing is known
    by then are compared."""

    def __init__(self) -> None:
        self._looks_left = _LOOKS_MAX
        self._known: dict[int, tuple[list[Any], bool]] = {}

    def are_keys(self, table: Any, held: Callable[[], Set[int]]) -> bool:
        """Whether every key is the address of what lies there, or of something that lives.

        held: addresses of what is tracked
        """
        first = next(iter(table), None)
        if type(first) is not int or first not in _ADDRESSES:
            return False
        keys = [*table]
        known = self._known.get(id(table))
        if known is None or known[0] != keys:
            known = self._known[id(table)] = keys, self._are(table, held)
        return known[1]

    def _are(self, table: Any, held: Callable[[], Set[int]]) -> bool:
        if not all(type(key) is int and key in _ADDRESSES for key in table):
            return False
        left = {key for key, one in table.items() if key not in _ids_in(one)}
        left -= held() if left else set()
        if left and self._looks_left:
            self._looks_left -= 1
            left -= {*map(id, gc.get_objects())}
        return not left


def _ids_in(value: Any) -> Iterable[int]:
    parts = value if type(value) in (list, tuple) else ()
    return id(value), *map(id, parts)
