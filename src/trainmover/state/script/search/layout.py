# SPDX-License-Identifier: Apache-2.0
"""Where the variables of a script are, for one place in it: what a search has found, and a capture
reads.
"""

import ast
import os
from collections import deque
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import CellType, CodeType
from typing import Any, NamedTuple

from trainmover.asked import Sizes
from trainmover.state.kinds.modules.attributes import goes_along
from trainmover.state.script.place.stacked import Reader
from trainmover.state.script.things.things import Things
from trainmover.state.script.things.views import Views
from trainmover.state.script.values import NO_VALUE, Entry, Holding, Itself

ABSENT: Any = object()
NEVER: Any = object()
NO_TYPES: frozenset[type] = frozenset()
BEFORE = "before the fetch: "
"""In the place of a name: what the statement that fetches has read by then."""
WITH = "with "
"""The same of the manager of a statement around the fetch."""
SAME = "the object of "
"""Before a name: which one it is of several that share one."""
AGAIN = " ("
"""Behind the name of a function: the number of its frame, from the second one on."""
PROCESS, LAYERS, HOOKS = "this process", "layers of ", "hooks of tensors and optimizers"
"""In the place of a file, of what is set for all of it; and in that of a name."""
Place = list[Any]
"""File, function and line of each of the script's frames, outermost first, and whether something is
being collected there that no variable holds yet: by a comprehension, or as in `sum(map(...))`."""


@dataclass(slots=True)
class Slot:
    """One variable. owner[name] is its value; a cell is its own owner.

    key     file, function and path: what it is known by in another process
    owner   what holds it: a dict or list, a cell, a function, or an object with slots; None: the
            frame of a function
    of      the class whose dict that is: only it can be stored to
    at_end  counts only if the loop ends here
    target  a loop stores to it, or to a part of it: it shows how far an iterator is
    count   is such a target, and counts if it is no part of the batch
    there   only whether it is there counts, or how many it holds: see `fold.there`
    inherited  by an object from its class: see there, as long as it has none itself
    last    value that `entry` is of, if that is never changed in place
    silent  types of which it has no entry, now that it was one of them
    before  entry of the last value that may change in place
    told_by  what tells whether that entry is right still: see `standing_for`
    """

    key: str
    owner: Any
    name: Any
    secret: bool
    at_end: bool = False
    target: bool = False
    count: bool = False
    of: type | None = None
    is_asked: bool = False
    inherited: bool = False
    there: bool = False
    missing: bool = True
    last: Any = NEVER
    entry: Entry = NO_VALUE
    silent: frozenset[type] = NO_TYPES
    before: Entry = None
    told_by: Holding | Itself | None = None


@dataclass
class Layout:
    """Where the variables are, for one place in the script.

    at        instructions at which the script's frames stand, outermost first: see `under_way`
    frames    slots of the locals of each frame
    outside   slots of all others
    watched   slots of what nothing in the source changes, as far as is known, and of large
              containers that somebody may change: each counts from when it has changed
    brief     slots of attributes that are written before they are read, as far as the source says
    dead      names of the locals of each frame that are written again before they are read
    inherited  slots of what an object has from its class; they are in `outside` too
    unlisted  globals of the script's own functions whose module nobody lists
    roots     of the objects that the search went through: in which frame, by which name
    children  the others: what held them must hold them still
    summed    keys of variables that sum up what steps give: see `place.summed`
    tracked   keys of what was reached from a tracked object, and goes with it
    carried   slots of attributes of which some go with it: see `going`
    in_steps  slots of what steps store to, once that was asked for
    reads     of the statement that fetches, before it does: frame, key and expression
    managers   of the `with`s around the fetch: see `Stacked`
    sizes     of the dicts and lists that it looked through; `lengths` asks all at once
    """

    things: Things
    views: Views
    frames: list[list[Slot]] = field(default_factory=list)
    outside: list[Slot] = field(default_factory=list)
    watched: list[Slot] = field(default_factory=list)
    brief: list[Slot] = field(default_factory=list)
    dead: list[Set[str]] = field(default_factory=list)
    inherited: list[Slot] = field(default_factory=list)
    unlisted: list[dict[str, Any]] = field(default_factory=list)
    roots: list[tuple[int, str, object]] = field(default_factory=list)
    children: list[tuple[Mapping[str, Any], str, object]] = field(default_factory=list)
    sizes: list[tuple[Any, int]] = field(default_factory=list)
    lengths: Sizes | None = None
    at: list[int] = field(default_factory=list)
    place: Place = field(default_factory=list)
    summed: set[str] = field(default_factory=set)
    tracked: list[str] = field(default_factory=list)
    carried: list[Slot] = field(default_factory=list)
    in_steps: list[Slot] | None = None
    reads: list[tuple[int, str, ast.expr]] = field(default_factory=list)
    managers: list["Stacked"] = field(default_factory=list)
    uses: int = 0

    def keeps_sizes(self) -> bool:
        """Whether what the search looked through holds as much as it did."""
        if self.lengths is None:
            self.lengths = Sizes([one for one, _ in self.sizes], [size for _, size in self.sizes])
        return self.lengths.same()


class Stacked(NamedTuple):
    """The manager of a `with`.

    frame  in which it lies on the stack; `read` returns what it holds
    line   where the statement begins
    """

    key: str
    frame: int
    read: Reader
    line: int


def now_in(slot: Slot) -> Any:
    """What it holds; ABSENT: nothing. Where each step does this, it is written out there."""
    return value_of(slot) if slot.is_asked else slot.owner.get(slot.name, ABSENT)


def going(carried: Iterable[Slot]) -> list[str]:
    """Keys of those of which the value, as it is now, is sent."""
    values = [(slot.key, now_in(slot)) for slot in carried]
    return [key for key, value in values if value is ABSENT or goes_along(value)]


def value_of(slot: Slot) -> Any:
    """Of one whose owner is no dict."""
    owner, kind = slot.owner, type(slot.owner)
    if kind is CellType:
        try:
            return owner.cell_contents
        except ValueError:
            return ABSENT
    if kind in (list, tuple, deque):
        return owner[slot.name] if slot.name < len(owner) else ABSENT
    try:
        return object.__getattribute__(owner, slot.name)
    except AttributeError:
        return ABSENT


def short(path: str) -> str:
    """The same on all machines, wherever the script lies there."""
    return os.sep.join(path.split(os.sep)[-2:])


def at_of(code: CodeType) -> tuple[str, str, int]:
    first = 0 if code.co_name == "<module>" else code.co_firstlineno
    return short(code.co_filename), code.co_name, first
