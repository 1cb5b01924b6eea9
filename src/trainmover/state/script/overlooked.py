# SPDX-License-Identifier: Apache-2.0
"""What a script keeps and, as far as its source says, nobody changes: it is looked at all the same.

A hook that is given as text, a library's function that was given a list, `exec`: no line shows
what they change. So at each fetch little marks tell whether a value may be another: it is another
object, a list has other entries, a tensor another version. Where they do, and at the first fetches
and every so many in any case, what it holds is compared with what it was at first. What has changed
counts from then on.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection
from typing import Any

import numpy
from torch import Tensor

from trainmover.state.script.search.layout import ABSENT, NEVER, Slot, value_of
from trainmover.state.script.things.held import CANNOT_BE_READ
from trainmover.state.script.values import NO_VALUE, PLAIN, Entry, same
from trainmover.torch_internals.tensors import version_of

EARLY, WHOLE_EVERY = 4, 16
"""Looks at what everything holds: the first ones, and every so many."""
MARKED_MAX = 256
"""Values that may change in place, of which marks are read at each look."""
_ENTRIES_MAX, _BYTES_MAX, _DEPTH_MAX = 64, 4096, 3
"""Of a container or an array, for a mark; of a container in one a quarter of the entries."""
_SEQUENCES: tuple[type, ...] = (list, tuple, deque)
_TABLES: tuple[type, ...] = (dict, OrderedDict, defaultdict, Counter)
_UNKNOWN: Any = object()
Mark = Any
"""Of a value: equal as long as nobody has put or written anything there. None: a value had another
one and was the same, as a list of what is trained, so that its marks tell nothing."""


class Overlooked:
    """Of one run of the script. Main thread only.

    counting  keys of variables that have changed though nothing is stored to them, and of those
              that somebody may change
    """

    def __init__(self, entry_of: Callable[[Slot, object], Entry]) -> None:
        self.counting: set[str] = set()
        self._entry_of = entry_of
        self._first: dict[str, Entry] = {}  # By key.
        self._marks: dict[str, Mark] = {}
        self._looks = 0

    def look(self, slots: Collection[Slot], *, whole: bool = False) -> list[str]:
        """Keys of those that have changed and did not count so far.

        whole: whatever their marks say
        """
        self._looks += 1
        whole = whole or self._looks <= EARLY or self._looks % WHOLE_EVERY == 0
        left, found = MARKED_MAX, list[str]()
        for slot in slots:
            # As `now_in`, without its call.
            value = value_of(slot) if slot.is_asked else slot.owner.get(slot.name, ABSENT)
            if value is slot.last:
                continue
            if type(value) in PLAIN:
                slot.last = value
            else:
                slot.last, left = NEVER, left - 1
                if not whole and (left < 0 or not self._may_be_another(slot.key, value)):
                    continue
            if self._is_another(slot, value):
                found.append(slot.key)
        self.counting.update(found)
        return found

    def forget(self) -> None:
        """The run of the script is over."""
        self.counting, self._first, self._marks, self._looks = set(), {}, {}, 0

    def _may_be_another(self, key: str, value: object) -> bool:
        known = self._marks.get(key, _UNKNOWN)
        return known is not None and known != _mark_of(value)

    def _is_another(self, slot: Slot, value: object) -> bool:
        entry = NO_VALUE if value is ABSENT else self._entry_of(slot, value)
        before = self._first.setdefault(slot.key, entry)
        if NO_VALUE not in (entry, before) and not same(entry, before):
            return True
        known = self._marks.get(slot.key, _UNKNOWN)
        mark = _mark_of(value) if known is not None else None
        self._marks[slot.key] = mark if known is _UNKNOWN or known == mark else None
        return False


def _mark_of(value: object) -> Mark:
    try:
        return mark_of(value)
    except CANNOT_BE_READ:  # Another thread puts something there.
        return None


def mark_of(value: Any, depth: int = 0) -> Mark:
    """See `Mark`."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if issubclass(kind, Tensor):
        return id(value), -1 if value.is_inference() else version_of(value)
    if kind is numpy.ndarray:
        is_small = value.nbytes <= _BYTES_MAX and not value.dtype.hasobject
        return id(value), value.tobytes() if is_small else b""
    if kind not in (*_TABLES, *_SEQUENCES, set):
        return id(value)
    if len(value) > _ENTRIES_MAX >> 2 * depth or depth >= _DEPTH_MAX:
        return id(value), len(value)
    if kind is set:
        return {*value}
    entries = [*value, *value.values()] if kind in _TABLES else value
    if PLAIN.issuperset(map(type, entries)):
        return [*entries]
    return [mark_of(one, depth + 1) for one in entries]
