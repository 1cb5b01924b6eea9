# SPDX-License-Identifier: Apache-2.0
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
from trainmover.state.script.values import PARTS_MAX, PLAIN, Entry, could_be_read, handle_entry

SHARED = frozenset(
    {list, dict, set, deque, bytearray, OrderedDict, defaultdict, Counter, Tensor, numpy.ndarray}
)
"""What may be changed in place by any of its names."""
_WHOLE: Any = object()
_LISTS, _DICTS = (list, deque), (dict, OrderedDict, defaultdict)


class Sharing:
    """Of one capture. is_shared: two variables hold one object."""

    def __init__(self) -> None:
        self._holders: dict[int, list[tuple[Slot, Any]]] = {}
        self.is_shared = False

    def begin(self) -> None:
        """Nothing was read yet."""
        self._holders.clear()
        self.is_shared = False

    def note(self, slot: Slot, value: Any) -> None:
        """What a variable holds, of a kind in SHARED."""
        self.note_whole(slot, value)
        is_dict = type(value) in _DICTS
        if (is_dict or type(value) in _LISTS) and len(value) <= PARTS_MAX:
            parts: list[Any] = could_be_read(lambda: [*(value.values() if is_dict else value)], [])
            if not SHARED.isdisjoint(map(type, parts)):
                self._note_parts(slot, value, parts, is_dict=is_dict)

    def note_whole(self, slot: Slot, value: object) -> None:
        """The same of one in which nothing of such a kind lies."""
        self._hold(value, slot, _WHOLE)

    def _note_parts(self, slot: Slot, value: Any, parts: list[Any], *, is_dict: bool) -> None:
        keys = could_be_read(lambda: [*value], []) if is_dict else range(len(parts))
        for number, (key, one) in enumerate(zip(keys, parts, strict=False)):
            if type(one) in SHARED:  # Other keys might be told by code of the script's.
                self._hold(one, slot, key if type(key) in PLAIN else number)

    def _hold(self, value: object, slot: Slot, part: Any) -> None:
        holders = self._holders.setdefault(id(value), [])
        self.is_shared |= bool(holders) and holders[0][0] is not slot
        holders.append((slot, part))

    def tell(self, entries: dict[str, Entry], tracked: Collection[str]) -> None:
        """Into the entries of a capture. tracked: keys of what goes with tracked state"""
        for holders in self._holders.values():
            if len({slot.key for slot, _ in holders}) < 2:
                continue
            known = sorted(
                (slot.key, "" if part is _WHOLE else f"[{part!r}]")
                for slot, part in holders
                if slot.key in entries and slot.key not in tracked
            )
            for key, part in known[1:]:
                place, _, path = key.rpartition("\x1f")
                first = f"{path_of(known[0][0])}{known[0][1]}"
                entries[f"{place}\x1f{SAME}{path}{part}"] = handle_entry(f"that of {first}")
