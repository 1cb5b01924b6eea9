# SPDX-License-Identifier: Apache-2.0
"""What optimizers keep for their parameters, but for what lies in tensors: numbers, texts, lists.
A step may change such before its update: a level of gradients by which it sets the rate.

Mostly there are tensors alone, for hundreds of parameters. Which tables hold nothing else is found
once, and then asked is only whether they have as many entries as they had. What tensors hold, and
whether others have taken their place, `worker/step/changes.py` looks for.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any

from torch import Tensor, nn

from trainmover.asked import Held, Sizes, are, held_in
from trainmover.state.class_files import PLAIN
from trainmover.state.tracked import Tracked
from trainmover.worker.step.retry.arguments import CONTAINERS
from trainmover.worker.step.retry.copies import MEMORY, Copies

_TENSORS = frozenset({Tensor, nn.Parameter})
_STILL = PLAIN | _TENSORS
_CHANGES_IN_PLACE = (*CONTAINERS, tuple, *MEMORY)
_STATE, _VALUES = attrgetter("state"), methodcaller("values")
_Table = dict[Any, Any]


@dataclass
class StatesCopy:
    """What was there.

    bare   tables that hold tensors alone, and their keys
    flat   those that hold plain values, too, with their entries
    others what else may be changed in its place
    """

    bare: list[tuple[_Table, list[Any]]] = field(default_factory=list)
    flat: list[tuple[_Table, _Table]] = field(default_factory=list)
    others: Copies = field(default_factory=Copies)

    def why_not(self) -> str:
        """Why that cannot be put back; "" if it can."""
        if all(isinstance(table.get(key), Tensor) for table, keys in self.bare for key in keys):
            return ""
        return "it has taken a tensor out of an optimizer's state before its update"

    def put_back(self) -> None:
        """In its place. What was not there goes."""
        for table, keys in self.bare:
            for key in table.keys() - keys:
                del table[key]
        for table, entries in self.flat:
            table.clear()
            table.update(entries)
        self.others.put_back()


class States:
    """Of all optimizers of a rank. One for all steps."""

    def __init__(self) -> None:
        self._owners: list[Any] = []
        self._inside: list[Any] = []  # In all of them, one after the other.
        self._bare: list[tuple[_Table, list[Any]]] = []
        self._sizes = Sizes([], [])
        self._flat: list[_Table] = []
        self._is_flat = True  # There is nothing but these two.
        self._tables: Held = held_in([])  # All that do not hold tensors alone.
        self._further: list[tuple[Any, list[Any]]] = []
        self._memory = False
        self._copy = StatesCopy()

    def copy(self, tracked: Tracked) -> StatesCopy:
        """Of what they hold now."""
        if self.same(tracked) and not self._memory:
            return self._copy
        if not (self._stand_as_they_did(tracked) and self._copy_flat()):
            self._look([*map(_STATE, tracked.optimizers)])
        return self._copy

    def same(self, tracked: Tracked) -> bool:
        """Whether they hold what they held when it was copied last. Arrays are not looked into.
        Asked three times in each step: hence in one call."""
        owners = [*map(_STATE, tracked.optimizers)]
        return (
            are(owners, self._owners)
            and are([*chain.from_iterable(map(_VALUES, owners))], self._inside)
            and self._sizes.same()
            and self._tables.same()
            and (not self._further or self._same_further())
        )

    def _same_further(self) -> bool:
        return all(are(_entries(one), entries) for one, entries in self._further)

    def _stand_as_they_did(self, tracked: Tracked) -> bool:
        """Tables of all parameters: those that hold tensors alone have as many, too."""
        owners = [*map(_STATE, tracked.optimizers)]
        tables = [*chain.from_iterable(map(_VALUES, owners))]
        return are(owners, self._owners) and are(tables, self._inside) and self._sizes.same()

    def _copy_flat(self) -> bool:
        """Plain values are others now. False if there is more than that."""
        copies = [*map(dict.copy, self._flat)]
        if not self._is_flat or not _kinds_in(copies) <= _STILL:
            return False
        self._tables = held_in(self._flat)
        self._copy = StatesCopy(self._bare, [*zip(self._flat, copies, strict=True)])
        return True

    def _look(self, owners: list[Any]) -> None:
        self._owners, self._inside = owners, [*chain.from_iterable(map(_VALUES, owners))]
        self._bare, self._flat, others = [], [], list[Any]()
        for table in self._inside:
            kinds = _kinds_in([table]) if type(table) is dict else None
            if kinds is not None and all(issubclass(kind, Tensor) for kind in kinds):
                self._bare.append((table, [*table]))
            elif kinds is not None and kinds <= _STILL:
                self._flat.append(table)
            else:
                others.append(table)
        if any(type(one) is not dict for one in others):
            others += owners  # Values of their own, for no parameter.
        self._is_flat = not others
        self._sizes = Sizes([one for one, _ in self._bare], [len(keys) for _, keys in self._bare])
        copies = self._look_into(others)
        flat = [(table, table.copy()) for table in self._flat]
        self._copy = StatesCopy(self._bare, flat, copies)

    def _look_into(self, waiting: list[Any]) -> Copies:
        """All that may be changed in its place. Of tensors only which they are."""
        copies, tables = Copies(), [*self._flat]
        self._further, self._memory = [], False
        for one in waiting:  # More come.
            if isinstance(one, MEMORY):
                copies.add_memory(one)
                self._memory = True
            elif isinstance(one, tuple) or (
                isinstance(one, CONTAINERS) and copies.add_container(one)
            ):
                if isinstance(one, dict):
                    tables.append(one)
                elif not isinstance(one, tuple):
                    self._further.append((one, _entries(one)))
                waiting += [part for part in _parts(one) if _may_change(part)]
        self._tables = held_in(tables)
        return copies


def _may_change(value: object) -> bool:
    return type(value) not in _STILL and isinstance(value, _CHANGES_IN_PLACE)


def _kinds_in(tables: list[_Table]) -> set[type]:
    return {*map(type, chain.from_iterable(map(dict.values, tables)))}


def _parts(container: Any) -> Iterable[Any]:
    return dict.values(container) if isinstance(container, dict) else _entries(container)


def _entries(container: Any) -> list[Any]:
    """Of a list, a deque, a set or a tuple, in its order."""
    return [*container]
