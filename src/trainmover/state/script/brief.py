# SPDX-License-Identifier: Apache-2.0
"""What each step seems to write before it reads it, as far as the source says: it goes with a rank
all the same, where it is small and plain.

A record has it with all of its content, nobody compares it, and who takes the rank stores it. It is
stored, and never filled: a value that each step makes anew may be a part of something else here.
"""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import numpy
from torch import Tensor

from trainmover.state import tensor_bytes
from trainmover.state.script.away import Away
from trainmover.state.script.putting import is_there, store_in
from trainmover.state.script.search.layout import Slot, now_in
from trainmover.state.script.things.things import Things
from trainmover.state.script.things.views import Views
from trainmover.state.script.values import (
    CONTENT_BYTES_MAX,
    NATIVE,
    NO_VALUE,
    PLAIN,
    Entry,
    entry_of,
    same,
)

ITEMS_MAX = 64
TOTAL_BYTES_MAX = 64 * 1024
"""Of all of them in one record."""
_FLAT = frozenset({list, tuple, set, deque, dict})
_KINDS = PLAIN | _FLAT | {Tensor, numpy.ndarray}


def may_be(value: object) -> bool:
    """Whether it may be so small and plain at some time."""
    return type(value) in _KINDS or isinstance(value, numpy.generic | Away)


def entry(value: Any, views: Views, things: Things) -> Entry:
    """With all of its content; NO_VALUE of what is not small and plain, without a look at more than
    its size."""
    if not _is_small(value):
        return NO_VALUE
    found = entry_of(value, views=views, things=things)
    return found if type(found) in PLAIN or (found is not NO_VALUE and len(found) > 2) else NO_VALUE


def size_of(known: Entry) -> int:
    """Bytes that it has in a record."""
    return len(known[2]) if type(known) is list else 8


def _is_small(value: Any) -> bool:
    kind = type(value)
    if kind in (str, bytes):
        return len(value) <= CONTENT_BYTES_MAX
    if kind in PLAIN or issubclass(kind, numpy.generic):
        return True
    if kind is Tensor:
        plain = value.is_cpu and not value.requires_grad and tensor_bytes.is_plain(value)
        return bool(plain and value.nbytes <= CONTENT_BYTES_MAX)
    if kind is numpy.ndarray:
        return bool(value.nbytes <= CONTENT_BYTES_MAX and not value.dtype.hasobject)
    if kind not in _FLAT or len(value) > ITEMS_MAX:
        return False
    entries = [*value.values()] if kind is dict else [*value]
    return NATIVE.issuperset(map(type, entries)) and all(
        len(one) <= CONTENT_BYTES_MAX for one in entries if type(one) in (str, bytes)
    )


def made_of(
    theirs: Mapping[str, Entry], before: Mapping[str, Entry], now: Mapping[str, Entry]
) -> dict[str, Entry]:
    """What the rank's last step has made of its variables, as far as another rank tells: of those
    that were the same there before it.

    theirs, before  of the rank and of the other one, where both fetched for that step
    now             of the other one, behind it
    """
    return {
        key: known
        for key, known in now.items()
        if key in theirs and key in before and same(theirs[key], before[key])
    }


def left_alone(before: Mapping[str, Entry], now: Mapping[str, Entry]) -> set[str]:
    """What a step has not changed on another rank: the rank's own it has left alone as well."""
    return {key for key in before.keys() & now.keys() if same(before[key], now[key])}


def store(slots: Collection[Slot], values: Mapping[str, Any]) -> None:
    """In each of these the value that is meant for its key, unless it has that."""
    for slot in slots:
        if slot.key in values and not is_there(now_in(slot), values[slot.key]):
            store_in(slot, None, values[slot.key])
