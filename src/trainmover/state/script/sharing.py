"""Which variables are one object, and which are two equal ones: `best = kept`, `best = list(kept)`.

Values do not tell it, and what is appended to one is then in the other, or is not. So where what a
variable holds was held by another one before, or lies in what that holds (`current = buckets[2]`),
it says so, in one entry more. Main thread only.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection
from typing import Any

import numpy
from torch import Tensor

from trainmover.state.script.comparison import path_of
from trainmover.state.script.search.layout import SAME, Slot
from trainmover.state.script.values import Entry, handle_entry

SHARED = frozenset(
    {list, dict, set, deque, bytearray, OrderedDict, defaultdict, Counter, Tensor, numpy.ndarray}
)
"""What may be changed in place by any of its names."""
_LISTS, _DICTS = (list, deque), (dict, OrderedDict, defaultdict)
_INSIDE_MAX = 64


class Sharing:
    """Of one capture.

    found  variables, or parts of them, each with the one that was read before
    """

    def __init__(self) -> None:
        self.found: list[tuple[Slot, str, Slot, str]] = []
        self._holders: dict[int, tuple[Slot, str]] = {}

    def begin(self) -> None:
        """Nothing was read yet."""
        self.found.clear()
        self._holders.clear()

    def note(self, slot: Slot, value: Any) -> None:
        """What a variable holds, of a kind in SHARED."""
        first, where = self._holders.setdefault(id(value), (slot, ""))
        if first is not slot:
            self.found.append((slot, "", first, where))
        is_dict = type(value) in _DICTS
        if not (is_dict or type(value) in _LISTS) or len(value) > _INSIDE_MAX:
            return
        if SHARED.isdisjoint(map(type, value.values() if is_dict else value)):
            return
        for key, one in value.items() if is_dict else enumerate(value):
            if type(one) in SHARED:
                first, where = self._holders.setdefault(id(one), (slot, f"[{key!r}]"))
                if first is not slot:
                    self.found.append((slot, f"[{key!r}]", first, where))

    def tell(self, entries: dict[str, Entry], tracked: Collection[str]) -> None:
        """Into the entries of a capture. tracked: keys of what goes with tracked state"""
        for slot, where, first, at in self.found:
            if slot.key in entries and first.key in entries and slot.key not in tracked:
                place, _, path = slot.key.rpartition("\x1f")
                key = f"{place}\x1f{SAME}{path}{where}"
                entries[key] = handle_entry(f"that of {path_of(first.key)}{at}")
