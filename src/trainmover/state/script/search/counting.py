# SPDX-License-Identifier: Apache-2.0
"""What counts of all that a search comes to: what is stored to after the set-up, or changed in
place, and neither tells the time nor is written anew before anybody reads it.
"""

import functools
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from types import FunctionType
from typing import Any

from torch import nn

from trainmover.state.kinds.generators import is_generator
from trainmover.state.script.code.relied_on import NOT_AROUND, relies_on_more, worthless
from trainmover.state.script.code.scopes import Scope, Source
from trainmover.state.script.code.times.clocks import tells_in
from trainmover.state.script.search.contents import (
    CONTAINERS,
    changes_in_place,
    held_in,
    is_handed,
    is_trained,
)
from trainmover.state.script.things.crowds import DEPTH_MAX as CROWD_DEPTH_MAX
from trainmover.state.script.things.crowds import objects_in, seen_of
from trainmover.state.script.things.held import computed_in, held_by, slots_of
from trainmover.state.script.things.libraries import OwnTypes, is_like_array
from trainmover.state.script.things.readers import BOUND, CACHE
from trainmover.state.script.things.things import Things
from trainmover.state.script.things.untracked import TRAINED
from trainmover.state.script.values import NO_VALUE, PLAIN, entry_of

SMALL, NESTED_MAX = 64, 3
FUNCTIONS = frozenset({FunctionType, functools.partial, *BOUND})
CONTAINER_TYPES = frozenset(CONTAINERS)


class Counting:
    """Of one search.

    trained  names of attributes that are what is trained
    """

    def __init__(self, source: Source, things: Things, is_own: OwnTypes) -> None:
        self.trained: set[str] = set()
        self._source = source
        self._things = things
        self._is_own = is_own

    def is_variable(self, value: object) -> bool:
        if type(value) in PLAIN or is_generator(value):
            return True
        return entry_of(value, things=self._things) is not NO_VALUE

    def is_moving(self, value: object) -> bool:
        """Whether it changes with no store to what holds it, and is no container."""
        if is_generator(value) or is_like_array(type(value)):
            return True
        return self._things.moves(value) or is_trained(value)

    def may_change(self, value: object) -> bool:
        """Whether it can be changed with no store to what holds it."""
        if type(value) in PLAIN or self._things.stays(value):
            return False
        return self.is_variable(value)

    def varies(self, name: str, value: object) -> bool:
        """Whether what code reads by that name may be another later: an attribute, or a variable
        around it with what it is now."""
        if name in self._source.attributes.keys() | self._source.globals | self.trained:
            return True
        if value is not NOT_AROUND and name in self._source.again:
            return True
        kind = type(value)
        if issubclass(kind, (*TRAINED, nn.Parameter)) or self.is_moving(value):
            return kind not in FUNCTIONS and kind is not CACHE
        return name in self._source.changed and changes_in_place(value)

    def relies_on_more(self, function: object, owner: type | None = None) -> bool:
        """See there."""
        return relies_on_more(function, self.varies, self._source.read_by, owner)

    def stored(self, kind: type, names: Iterable[str]) -> set[str]:
        """Attributes of such an object that are stored to after the set-up: any, if their names are
        made up."""
        found = {name for name in names if type(name) is str}
        computed = {name: one.func for name, one in computed_in(kind).items() if name in found}
        if not self._source.dynamic:
            found &= self._source.attributes.keys()
        found -= self.temporary(kind, found)
        relies = [name for name, one in computed.items() if self.relies_on_more(one, kind)]
        return found.union(relies)

    def temporary(self, kind: type, names: set[str]) -> set[str]:
        """Those that are worth nothing between two steps: nobody reads them before they are written
        anew, nor does the code of others that such an object has."""
        brief = names & self._source.temporary
        others = [one for one in kind.__mro__ if brief and not self._is_own(one)]
        return worthless(brief, others)

    def is_handed(self, name: str, value: object) -> bool:
        """Whether others may change in place what an attribute holds to which nothing is stored."""
        known = is_handed(self._source, name) and name not in self._source.attributes
        return known and changes_in_place(value)

    def in_crowd(self, container: Any) -> dict[type, Collection[str]]:
        """Classes of what a large container has, with the names of what counts there."""
        found = self._counts_in(seen_of(container), 0)
        return {kind: names for kind, names in found.items() if names}

    def _counts_in(self, objects: Iterable[object], depth: int) -> dict[type, set[str]]:
        """By class: what is stored to after the set-up, and what holds generators of random
        numbers, or objects of which something counts."""
        found: dict[type, set[str]] = {}
        below: list[tuple[type, str, object]] = []
        for one in objects:
            kind = type(one)
            if is_generator(one):
                found[kind] = {"state"}
            elif self._is_own(kind) and not issubclass(kind, nn.Module):
                known = found.setdefault(kind, self._stored_by(kind))
                held = held_by(one)
                known |= self._source.by_others & held.keys()
                known |= {name for name, value in held.items() if self.is_handed(name, value)}
                below += [
                    (kind, name, part)
                    for name, value in held.items()
                    for part in islice(objects_in([value]), SMALL)
                ]
        found = {kind: self._that_count(kind, names) for kind, names in found.items()}
        inner: dict[type, set[str]] = {}
        if below and depth < CROWD_DEPTH_MAX:
            inner = self._counts_in([value for _, _, value in below], depth + 1)
        for kind, name, value in below:
            if inner.get(type(value)) and not self._tells_in(kind, name, stays=False):
                found[kind].add(name)
        return inner | found

    def _stored_by(self, kind: type) -> set[str]:
        """By methods of its own; and by others, as far as the class knows of it."""
        own = [one for one in kind.__mro__ if self._is_own(one)]
        known = set[str]().union(*(vars(one) for one in own), slots_of(kind))
        stored = (self._source.by_class.get(one.__name__, set()) for one in own)
        return (self._source.by_others & known).union(*stored)

    def _that_count(self, kind: type, names: set[str]) -> set[str]:
        left = names - self.temporary(kind, names)
        return {one for one in left if not self._tells_in(kind, one, stays=False)}

    def tells_time(self, name: str, scope: Scope, value: object) -> bool:
        """Whether a name holds the time, or something of the machine. Of an object that was made
        with it, as a log in a folder of this run, that says little: it may hold anything."""
        if name not in scope.clocks or name in scope.there:
            return False
        return name in scope.apart or not self._may_keep(value)

    def is_clock(self, path: str, value: object, kind: type | None = None) -> bool:
        """The same of an attribute, and of a part. kind: of the object that has it"""
        _, dot, name = path.rpartition(".")
        if not dot or not self._tells_in(kind, name, stays=not changes_in_place(value)):
            return False
        if f".{name}" in self._source.there:
            return False
        return f".{name}" in self._source.apart or not self._may_keep(value)

    def only_there(self, path: str, value: object, kind: type | None) -> bool:
        """Whether of an attribute that tells the time it counts whether it is there, or how many it
        holds. kind: of the object that has it"""
        _, dot, name = path.rpartition(".")
        if not dot or f".{name}" not in self._source.there:
            return False
        return self._tells_in(kind, name, stays=not changes_in_place(value))

    def is_fed(self, path: str, value: object, scope: Scope | None = None) -> bool:
        """Whether it is an object of the script's that is given the time, and nothing else: what it
        does not keep that in may be anything. scope: that of a name"""
        last = path if scope else path[path.rfind(".") :]
        kind = type(value)
        is_known = last in (scope or self._source).fed
        return is_known and self._is_own(kind) and not issubclass(kind, CONTAINERS)

    def keeps(self, kind: type) -> set[str]:
        """Attributes in which such an object keeps what it is given."""
        own = [one.__name__ for one in kind.__mro__ if self._is_own(one)]
        return set[str]().union(*(self._source.keeps.get(name, ()) for name in own))

    def _may_keep(self, value: object) -> bool:
        """Whether more than what it was made with may be in it."""
        return self._is_own(type(value)) or self.is_moving(value)

    def _tells_in(self, kind: type | None, name: str, *, stays: bool) -> bool:
        """In objects of that class, if it is one of the script's; else in any."""
        own = [one.__name__ for one in kind.__mro__ if self._is_own(one)] if kind else []
        return tells_in(self._source, name, own, stays=stays)

    def is_container(self, kind: type) -> bool:
        """One of Python's, or of a library's made out of it; what the script makes out of one has
        attributes, too."""
        if kind in CONTAINER_TYPES:
            return True
        return issubclass(kind, CONTAINERS) and not self._is_own(kind)

    def holds_own(self, value: Any) -> bool:
        return self.holds(value, lambda kind: self._is_own(kind) or kind is FunctionType)

    def holds(self, value: Any, wanted: Callable[[type], bool], depth: int = 0) -> bool:
        """Whether it is one of these, or a container of such."""
        if not self.is_container(type(value)):
            return wanted(type(value))
        if depth > NESTED_MAX or len(value) > SMALL:
            return False
        return any(self.holds(one, wanted, depth + 1) for one in held_in(value))
