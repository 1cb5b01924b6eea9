# SPDX-License-Identifier: Apache-2.0
"""Which attributes lie in the state of a tracked object: a key at the top of its state_dict()
stands for its own attribute of that name, if the two hold the same. A name in what lies in the
state, as in a dict that the object keeps or in the state of what it holds, stands for none of its
own.
"""

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import torch
from torch import Tensor

from trainmover.state.kinds.generators import is_generator, state_of
from trainmover.state.script.search.contents import flattened
from trainmover.state.script.search.layout import Slot, now_in
from trainmover.state.script.things.held import all_held_by, held_by, slots_of

_ROWS = (tuple, deque, set, frozenset)
_TABLES = (Counter, OrderedDict, defaultdict)
_NUMBERS_MAX = 64
_DEPTH = 2


class InState:
    """Of one state_dict() of an object.

    entries  names and values in it, also in dicts that lie there, but for what lies in those that
             are attributes of the object: which names they have says nothing of what it is made of
    """

    def __init__(self, whole: Any, owner: Any, entry: Callable[[object], Any]) -> None:
        self._entry, self._owner, self._held = entry, owner, held_by(owner)
        own = all_held_by(owner)
        self._own = {_plainly(name) for name in (*own, *slots_of(type(owner)))}
        self._top: dict[str, Any] = {}
        self.entries: list[tuple[Any, Any]] = []
        self._below: list[tuple[str, Any]] = []
        by_name = {_plainly(name): one for name, one in own.items()}
        for name, kept in flattened(whole, 0):
            plain = _plainly(name)
            self._top[plain] = kept
            is_own = plain in by_name and self._is_of(kept, by_name[plain])
            inner = [] if is_own else flattened(kept, _DEPTH - 1)
            self.entries += [(name, kept), *inner]
            self._below += [(plain, kept)] if plain not in self._own else []
            self._below += [(_plainly(below), one) for below, one in inner]

    def named(self, slots: Iterable[Slot]) -> set[str]:
        """Keys of those that names in it stand for. What the object holds may have attributes of
        the same name and value, and nothing says which of too many is meant."""
        found, below = set[str](), dict[str, list[Slot]]()
        for slot in slots:
            name = _plainly(slot.name)
            if slot.owner is not self._held and slot.owner is not self._owner:
                below.setdefault(name, []).append(slot)
            elif name in self._top and self._is_of(self._top[name], now_in(slot)):
                found.add(slot.key)
        for name, several in below.items():
            kept = [one for known, one in self._below if known == name]
            for slot in several:
                value = now_in(slot)
                asked = sum(self._is_of(now_in(one), value) for one in several)
                if asked <= sum(self._is_of(one, value) for one in kept):
                    found.add(slot.key)
        return found

    def _is_of(self, kept: object, value: object) -> bool:
        """Whether what a state has is that value, or an equal one, in whatever form."""
        if kept is value:
            return True
        if is_generator(value):
            given = [state_of(value), *_states_of(value)]  # type: ignore[arg-type]
            return self._entry(kept) in [*map(self._entry, given)]
        return bool(self._entry(_in_common(kept)) == self._entry(_in_common(value)))


def _states_of(generator: Any) -> list[Any]:
    """What it will draw from, as its own methods give it."""
    if isinstance(generator, random.Random):
        return [generator.getstate()]
    if isinstance(generator, numpy.random.Generator):
        return [generator.bit_generator.state]
    if isinstance(generator, numpy.random.BitGenerator):
        return [generator.state]
    return [generator.get_state()]


def _in_common(value: Any) -> Any:
    """What is the same of a list and of a deque with its entries, of a number and of a tensor."""
    kind = type(value)
    if issubclass(kind, Tensor | numpy.ndarray) and _is_small(value):
        return value.tolist()
    if issubclass(kind, numpy.number | numpy.bool_):
        return value.item()
    if kind in _ROWS:
        return [*value]
    return dict(value) if kind in _TABLES else value


def _is_small(value: Any) -> bool:
    """Whether its numbers can be told one by one."""
    if not isinstance(value, Tensor):
        return bool(value.size <= _NUMBERS_MAX)
    if value.numel() > _NUMBERS_MAX or value.is_meta or value.layout is not torch.strided:
        return False
    return type(value) in (Tensor, torch.nn.Parameter)


def _plainly(name: object) -> str:
    return str(name).lstrip("_")
