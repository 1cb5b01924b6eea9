"""Where the variables of a script are: looked for once for a place in it.

From the frames of its own files, its modules and what it tracks the search goes into what may hold
something of the script's: containers, objects and classes of its own, functions with what they
close over, their defaults and attributes, partials and methods, modules with their hooks, and
loaders with their parts. Each once, and so many. It runs none of the script's code.
"""

import array
import ast
import dataclasses
import functools
import os
import sys
import threading
from argparse import Namespace
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from types import (
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MethodType,
    ModuleType,
    NoneType,
    SimpleNamespace,
)
from typing import Any, NamedTuple

import numpy
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from trainmover.state.kinds.attributes import goes_along
from trainmover.state.kinds.generators import is_generator
from trainmover.state.kinds.hooks import Hooks
from trainmover.state.script import handles, rounds
from trainmover.state.script.code.handed import ANY
from trainmover.state.script.code.liveness import Live, live_at
from trainmover.state.script.code.operands import read_before
from trainmover.state.script.code.relied_on import relies_on_more, worthless
from trainmover.state.script.code.source import MODULE, Scope, Source, scope_of, source_of, tells_in
from trainmover.state.script.code.stacked import iterator_at, levels
from trainmover.state.script.code.syntax import walk
from trainmover.state.script.crowds import DEPTH_MAX as CROWD_DEPTH_MAX
from trainmover.state.script.crowds import Crowd, seen_of
from trainmover.state.script.layers import Layers
from trainmover.state.script.libraries import (
    clocks_in,
    grown_in,
    is_of_library,
    module_of,
    only_shows,
    stored_in,
)
from trainmover.state.script.things import (
    BOUND,
    C_DATA,
    CACHE,
    ITERATORS,
    First,
    Results,
    Things,
    computed_in,
    held_by,
    is_closed,
    results_of,
    slots_of,
)
from trainmover.state.script.untracked import TRAINED, Untracked
from trainmover.state.script.values import NO_VALUE, PLAIN, Entry, entry_of, is_secret
from trainmover.state.script.views import Views
from trainmover.torch_internals.modules import TABLES, global_hooks, hooks_of, parts_of, tensors_of

SLOTS_MAX = 512
OBJECTS_MAX = 512
"""In what is tracked, and as many in all else."""
DEPTH_MAX, _DEEP = 12, 6
ABSENT: Any = object()
NEVER: Any = object()
NO_TYPES: frozenset[type] = frozenset()
_SMALL, _NESTED_MAX = 64, 3
_STATE = frozenset({"param_groups", "state"})
"""What is tracked of an optimizer; of one that is not, `Untracked` reads it."""
ROUNDS, WITHIN, BEFORE = "rounds over ", "the place in ", "before the fetch: "
"""In the place of a name, of a loop, of its iterator, and of what the statement that fetches has
read by then."""
PROCESS, LAYERS = "this process", "layers of "
"""In the place of a file, of what is set for all of it; and in that of a name."""
_OURS = __name__.partition(".")[0]
_CONTAINERS = (list, tuple, deque, dict, set, frozenset)
_CONTAINER_TYPES = frozenset(_CONTAINERS)
_NAMESPACES = (Namespace, SimpleNamespace)
_FUNCTIONS = frozenset({FunctionType, functools.partial, *BOUND})
_PARTS = ("torch.utils.data", "torchdata", "torchvision.transforms")
"""Packages whose objects are made out of the script's: what they have is looked into."""
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
    last    value that `entry` is of, if that is never changed in place
    silent  types of which it has no entry, now that it was one of them
    before  entry of the last value that may change in place
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
    missing: bool = True
    last: Any = NEVER
    entry: Entry = NO_VALUE
    silent: frozenset[type] = NO_TYPES
    before: Entry = None


@dataclass
class Layout:
    """Where the variables are, for one place in the script.

    frames    slots of the locals of each frame, outermost first
    outside   slots of all others
    roots     of the objects that the search went through: in which frame, by which name
    children  the others: what held them must hold them still
    tracked   keys of what was reached from a tracked object, and goes with it
    carried   slots of attributes of which some go with it: see `going`
    rounds    of what loops around the fetch go through, and of what the statement that fetches has
              read before: in which frame, the key, the expression, and who works it out
    iterators  of the loops around the fetch: see `Stacked`
    kinds     ids of the types that these may be of
    sizes     of the dicts and lists that it looked through
    """

    things: Things
    views: Views
    frames: list[list[Slot]] = field(default_factory=list)
    outside: list[Slot] = field(default_factory=list)
    roots: list[tuple[int, str, object]] = field(default_factory=list)
    children: list[tuple[Mapping[str, Any], str, object]] = field(default_factory=list)
    sizes: list[tuple[Any, int]] = field(default_factory=list)
    place: Place = field(default_factory=list)
    tracked: list[str] = field(default_factory=list)
    carried: list[Slot] = field(default_factory=list)
    rounds: list[tuple[int, str, ast.expr, Callable[..., Any]]] = field(default_factory=list)
    iterators: list["Stacked"] = field(default_factory=list)
    kinds: Set[int] = frozenset()
    uses: int = 0


class Stacked(NamedTuple):
    """The iterator of a loop.

    frame  in which it lies on the stack, and `level` there
    line   where the loop begins
    known  the very one, if variables were found in it
    """

    key: str
    frame: int
    level: int
    line: int
    known: object


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


class Search:
    """Goes through the script's frames, its modules and what it tracks, once for a place."""

    def __init__(
        self,
        source: Source,
        is_own_file: Callable[[str], bool],
        modules: list[ModuleType],
        tracked: Iterable[tuple[str, object]],
        carried: Callable[[object], Collection[str]],
        loaders: Iterable[object],
        first: First,
    ) -> None:
        """carried: names of attributes that go with a tracked module or optimizer, by the dict that
        holds them. loaders: what gives the batches of the loops under way is made of. first: see
        `Things`"""
        self._source = source
        self._is_own_file = is_own_file
        self._modules = modules
        self._tracked = list(tracked)
        self._carried = carried
        self._loaders = list(loaders)
        self._is_own = OwnTypes(is_own_file)
        self._by_hooks = {
            id(holder)
            for _, obj in self._tracked
            if issubclass(type(obj), nn.Module)
            for holder in Hooks(obj).holders()  # type: ignore[arg-type]
        } - {id(None)}
        self._seen: set[int] = set()
        self._held: list[object] = []  # So that no other object gets an id that was seen.
        self._locals_of: list[Any] = []
        self._read_in: dict[int, Set[str]] = {}  # Of modules whose own frame is captured.
        self._objects, self._slots_left = 0, SLOTS_MAX
        self._caches: list[tuple[tuple[str, str, int], str, Any]] = []
        self._last: deque[tuple[tuple[str, str, int], tuple[Any, ...]]] = deque()
        self._trained: set[str] = set()  # Names of attributes that are what is trained.
        self._found = 0  # Variables that the tracked objects until now have.
        self._at: tuple[str, str, int] = ("", "", 0)
        self._by_others = source.by_others - source.temporary
        self._asked = source.asked | {f"_{name}" for name in source.asked}  # Of properties.
        own = [one for module in modules for one in vars(module).values() if type(one) is type]
        self._kinds = {*map(id, ITERATORS), *(id(one) for one in own if hasattr(one, "__next__"))}
        views = Views(self._tracked)
        untracked = Untracked(self._tracked, views)
        looked_at = functools.partial(_is_looked_at, source)
        things = Things(untracked, self._is_own, looked_at, first)
        self._layout = Layout(things, views, kinds=self._kinds)

    def layout(self, frames: list[FrameType], locals_of: list[Any], fed: set[FrameType]) -> Layout:
        """fed: of the frames those that get the batches themselves, or what a generator makes of
        them."""
        for frame, values in zip(frames, locals_of, strict=True):
            self._leave_out(scope_of(frame.f_code), values)
        for name, obj in self._tracked:
            self._at = ("", "tracked", 0)
            self._go_into(obj, name, 0)
            self._go_into_last()
            self._go_along(obj)
            if self._source.exchanges and issubclass(type(obj), nn.Module):
                layers = {"layers": Layers(obj)}  # type: ignore[arg-type]
                self._outside(self._slot(f"{LAYERS}{name}", layers, "layers", None))
                self._found += 1
        self._objects, self._slots_left = 0, SLOTS_MAX  # However large the model is.
        self._at = ("", "hooks", 0)
        for hooks in global_hooks().values():
            for hook in list(hooks.values()):
                self._go_into(hook, "a hook of all modules", 0)
        self._at = ("", "loader", 0)
        for number, part in enumerate(self._loaders):
            self._go_into(part, f"batches[{number}]", 0)
        for frame, values in zip(frames, locals_of, strict=True):
            self._frame(frame, values, fetches=frame is frames[-1], feeds=frame in fed)
        self._locals_of = locals_of
        self._foreign()
        for module in self._modules:
            self._at = (short(module.__file__ or ""), "<module>", 0)
            self._module(module)
        self._go_into_last()
        self._results()
        return self._layout

    def _results(self) -> None:
        """Of functions with a cache that rely on more than what they are given."""
        for at, path, function in self._caches:
            if relies_on_more(function, self._varies):
                self._at = at
                results = {"results": Results(function)}
                self._outside(self._slot(f"{path}()", results, "results", None))

    def _go_along(self, obj: object) -> None:
        """What was found in a tracked object goes with it: the attributes of a module or an
        optimizer that are carried, and of any other what is in its state, by name or by value."""
        known, newest = self._layout.tracked, self._layout.outside[self._found :]
        self._found = len(self._layout.outside)
        if issubclass(type(obj), nn.Module | Optimizer):
            carried = [slot for slot in newest if slot.name in self._carried(slot.owner)]
            self._layout.carried += carried
            known += going(carried)
            return
        if not hasattr(type(obj), "state_dict"):  # A generator: it has no other attributes.
            known += [slot.key for slot in newest]
            return
        whole = obj.state_dict()  # type: ignore[attr-defined]
        known += self._in_state(whole, newest)

    def _in_state(self, whole: Any, slots: list[Slot]) -> list[str]:
        """Keys of what lies in a state_dict(): by name; or by value, if there is nothing else that
        has it. A part of the state stands for one attribute, and an attribute may have many."""
        state = _flattened(whole, 2)
        names = {str(name).lstrip("_") for name, _ in state}
        left = Counter(self._entry(one) for one in (whole, *(one for _, one in state)))
        named = {slot.key for slot in slots if str(slot.name).lstrip("_") in names}
        left.subtract(self._entry(now_in(slot)) for slot in slots if slot.key in named)
        others = {s.key: self._parts(now_in(s), left) for s in slots if s.key not in named}
        asked = Counter(entry for parts in others.values() for entry in parts)
        found = [
            key
            for key, parts in others.items()
            if parts and all(asked[entry] <= left[entry] for entry in parts)
        ]
        return [*named, *found]

    def _parts(self, value: object, state: Counter[str]) -> list[str]:
        """The entry of a value; of a container that is not in the state as it is, those in it."""
        whole = self._entry(value)
        if whole in state or type(value) not in _CONTAINERS:
            return [whole]
        return [self._entry(one) for one in _entries_of(value)]

    def _entry(self, value: object) -> str:
        return repr(entry_of(value, things=self._layout.things))

    # --- where they are ---------------------------------------------------------------------------

    def _leave_out(self, scope: Scope, values: Mapping[str, Any]) -> None:
        """Objects that hold nothing but the time, by whatever way they are reached."""
        for name in scope.apart:
            value = values.get(name)
            if self._is_own(type(value)):
                self._seen_before(value)

    def _frame(
        self, frame: FrameType, values: Mapping[str, Any], *, fetches: bool, feeds: bool
    ) -> None:
        """fetches: no other frame of the script's lies between it and the fetch. A loop over a
        generator of the script's shows how far that is in the generator's own frame.

        feeds: whatever it calls gets the batches themselves, or what a generator makes of them
        """
        code, slots = frame.f_code, list[Slot]()
        live, scope, number = live_at(code, frame.f_lasti), scope_of(code), len(self._layout.frames)
        collects = live.collects or (live.calls and feeds)
        self._at = _at(code)
        held, shared = None, {*code.co_cellvars, *code.co_freevars}
        if values is frame.f_globals:
            held = values
        if code.co_name == "<module>":
            source = source_of(code.co_filename)
            shared = self._source.globals | (source.read if source else set(values))
        names = live.names | (shared - live.own_targets)  # Those are stored as the fetch returns.
        at_end = live.at_end | (shared & live.own_targets)
        if held is not None:
            self._read_in[id(held)] = names | at_end
        targets = (live.targets if fetches else live.targets - live.own_targets) - scope.given
        for name in sorted(names | targets | at_end):
            if name.startswith(("__", ".")):
                continue
            if self._tells_time(name, scope, values.get(name)):
                continue
            slot = self._slot(name, held, name, values.get(name))
            slot.target |= name in live.targets
            slots.append(slot)
            if name not in names and name in targets:
                slot.count = name not in scope.counts
                continue
            slot.at_end = name not in names
            value = values.get(name)
            if self._may_hold(value):
                if self._anchors(value):
                    self._layout.roots.append((number, name, value))
                self._go_into(value, name, 0)
        for name, value in list(values.items()):
            if name not in scope.clocks and type(value) in (FunctionType, MethodType, type):
                self._go_into(value, name, 0)
        self._layout.frames.append(slots)
        for one in rounds.at(code.co_filename, live.rounds):
            slot = self._slot(f"{ROUNDS}{ast.unparse(one)}", None, "", None)
            self._layout.rounds.append((number, slot.key, one, rounds.gone_through))
        self._iterators(frame, live, number)
        for read in read_before(code.co_filename, live.call):
            if not self._tells(read, scope):
                slot = self._slot(f"{BEFORE}{ast.unparse(read)}", None, "", None)
                self._layout.rounds.append((number, slot.key, read, rounds.worked_out))
        at = [short(code.co_filename), code.co_name, frame.f_lineno, collects]
        self._layout.place.append(at)

    def _iterators(self, frame: FrameType, live: Live, number: int) -> None:
        """Of the loops around the fetch, and of one that fetches and draws from others too."""
        code = frame.f_code
        level_of = levels(code) if live.loops else {}
        for offset, span in live.loops:
            level = level_of.get(offset)
            value = None if level is None else iterator_at(frame, level, self._kinds)
            if level is None or value is None or not self._is_followed(value):
                continue
            over = next(rounds.at(code.co_filename, {span}), None) if span else None
            path = f"{WITHIN}{ast.unparse(over) if over else 'a loop'}"
            key = self._slot(path, None, "", None).key
            line, before = over.lineno if over else code.co_firstlineno, self._slots_left
            for place, one in enumerate(self._own_in(value, 0)):
                self._go_into(one, f"{path}[{place}]" if place else path, 0)
            known = None if self._slots_left == before else value
            self._layout.iterators.append(Stacked(key, number, level, line, known))

    def _own_in(self, iterator: object, depth: int) -> Iterator[object]:
        """Objects of the script's classes that it draws from."""
        if self._is_own(type(iterator)):
            yield iterator
        elif depth < _NESTED_MAX:
            for _, one in self._layout.things.inside(iterator)[:_SMALL]:
                parts = one if type(one) is tuple else (one,)
                for part in parts:
                    yield from self._own_in(part, depth + 1)

    def _is_followed(self, value: object) -> bool:
        """A generator of a library's may count seconds."""
        code = value.gi_code if isinstance(value, GeneratorType) else None
        return code is None or self._is_own_file(code.co_filename)

    def _tells(self, read: ast.expr, scope: Scope) -> bool:
        """Whether the time is in it."""
        names = {f".{node.attr}" for node in walk(read) if isinstance(node, ast.Attribute)}
        return not names.isdisjoint(self._source.clocks) or any(
            isinstance(node, ast.Name) and node.id in scope.clocks for node in walk(read)
        )

    def _module(self, module: ModuleType) -> None:
        """Its globals; and what the script has hung on modules of others."""
        values = vars(module)
        known = self._read_in.get(id(values))
        changed = self._source.changed | self._source.globals | self._source.by_others
        changed |= self._source.handed.keys()
        source = source_of(module.__file__ or "")
        scope = source.scopes[MODULE] if source else Scope()
        for name, value in sorted(values.items(), key=itemgetter(0)):
            if name.startswith("__") or self._tells_time(name, scope, value):
                continue
            if type(value) is ModuleType and value not in self._modules:
                self._hung_on(value, vars(value), name)
                continue
            is_read = known is None or name in known or name in self._source.by_others
            if not is_read:  # It is written before.
                continue
            counts = name in changed or self._is_moving(value)
            read = source is not None and name in source.read
            counts = counts or (read and changes_in_place(value))
            if counts and self._is_variable(value) and not self._is_local(values, name):
                self._outside(self._slot(name, values, name, value))
            self._hold(values, name, value, name, 0)

    def _hold(
        self, held: Mapping[str, Any], name: str, value: object, path: str, depth: int
    ) -> None:
        """Go into it; and know that it is to stand there still."""
        if self._may_hold(value):
            if self._anchors(value):
                self._layout.children.append((held, name, value))
            self._go_into(value, path, depth)

    def _foreign(self) -> None:
        """What the script puts into modules of others: a function of its own in a library's."""
        self._at = ("", "imported", 0)
        for dotted in sorted(self._source.foreign):
            path, _, name = dotted.rpartition(".")
            owner = sys.modules.get(path)
            if owner is not None and owner not in self._modules:
                self._outside(self._slot(dotted, vars(owner), name, vars(owner).get(name)))

    def _is_local(self, values: Mapping[str, Any], name: str) -> bool:
        """Whether a frame of the module itself is among those captured, and has it."""
        return any(
            values is known and any(slot.name == name for slot in slots)
            for known, slots in zip(self._locals_of, self._layout.frames, strict=True)
        )

    # --- what they hold ---------------------------------------------------------------------------

    def _may_hold(self, value: object, depth: int = 0) -> bool:
        kind = type(value)
        if kind in PLAIN or issubclass(kind, ModuleType):
            return False
        if issubclass(kind, Tensor):
            return bool(held_by(value) or hooks_of(value)) or _is_trained(value)  # type: ignore[arg-type]
        if kind is numpy.ndarray:
            return bool(value.dtype.hasobject)  # type: ignore[attr-defined]
        if module_of(kind).startswith(_OURS) or handles.is_one(kind):
            return False
        if self._is_container(kind):
            if depth >= _NESTED_MAX or len(value) > _SMALL:  # type: ignore[arg-type]
                return bool(self._crowd_in(value))
            return any(self._may_hold(entry, depth + 1) for entry in _held_in(value))
        if kind in _FUNCTIONS or issubclass(kind, nn.Module):
            return True
        if self._is_own(kind) or issubclass(kind, type) or self._is_moving(value):
            return True
        return bool(held_by(value)) or self._may_count(kind) or self._may_get(kind)

    def _may_count(self, kind: type) -> bool:
        """Whether an object of that kind is a library's, and may keep how it was used."""
        return _is_state(kind) or bool(self._counted_by(kind))

    def _may_get(self, kind: type) -> bool:
        """Whether the script may hang something on such an object that has no attribute yet."""
        return bool(self._source.by_others) and issubclass(kind, threading.local)

    def _anchors(self, value: object, depth: int = 0) -> bool:
        """Whether another object in its place may hold other variables of the script's. Others come
        and go with each step."""
        kind = type(value)
        if self._is_container(kind):
            if depth >= _NESTED_MAX or len(value) > _SMALL:  # type: ignore[arg-type]
                return bool(self._crowd_in(value))
            return any(self._anchors(entry, depth + 1) for entry in _held_in(value))
        if kind in _FUNCTIONS or issubclass(kind, nn.Module) or self._is_own(kind):
            return True
        return bool(self._counted_by(kind))

    def _is_moving(self, value: object) -> bool:
        """Whether it changes with no store to what holds it, and is no container."""
        return is_generator(value) or self._layout.things.moves(value) or _is_trained(value)

    def _go_into(
        self, value: object, path: str, depth: int, grown: frozenset[str] | None = None
    ) -> None:
        """What may hold something of the script's, below `value`; each once.

        grown: attributes that a library's object that holds it makes out of what they were

        What libraries' objects hold, and what lies deep, comes last: the script may hold it nearer,
        and no tree of many objects is to be in the way of all else.
        """
        of_library = self._is_container(type(value)) or _is_state(type(value))
        if depth >= _DEEP or (grown is not None and of_library):
            self._last.append((self._at, (value, path, depth, grown)))
        else:
            self._look_into(value, path, depth, grown)

    def _go_into_last(self) -> None:
        while self._last:
            self._at, last = self._last.popleft()
            self._look_into(*last)

    def _look_into(
        self, value: object, path: str, depth: int, grown: frozenset[str] | None
    ) -> None:
        if depth >= DEPTH_MAX or self._objects >= OBJECTS_MAX or self._is_clock(path, value):
            return
        if self._seen_before(value):
            return
        kind = type(value)
        if self._is_container(kind):
            self._entries(value, path, depth, grown)
        elif kind is FunctionType:
            self._function(value, path, depth)  # type: ignore[arg-type]
        elif kind in BOUND:
            self._method(value, path, depth)
        elif kind is CACHE:
            self._object_of_others(value, path, depth)
            self._caches.append((self._at, path, value))
            for one in results_of(value):
                self._go_into(one, f"{path}()", depth + 1)
        elif issubclass(kind, functools.partial):
            self._hung_on(value, held_by(value), path)
            for one in (value.func, value.args, value.keywords):  # type: ignore[attr-defined]
                self._go_into(one, path, depth + 1)
        elif issubclass(kind, type):
            self._class(value, depth)  # type: ignore[arg-type]
        elif issubclass(kind, nn.Module):
            self._module_of_torch(value, path, depth)  # type: ignore[arg-type]
        elif self._is_own(kind):
            self._attributes(value, path, depth)
        elif issubclass(kind, Tensor):
            self._tensor(value, path, depth)  # type: ignore[arg-type]
        else:
            self._object_of_others(value, path, depth, grown)

    def _entries(self, container: Any, path: str, depth: int, grown: frozenset[str] | None) -> None:
        if len(container) > _SMALL:
            self._crowd(container, path, depth)
            return
        if not isinstance(container, tuple | frozenset):
            self._layout.sizes.append((container, len(container)))
        named = container.items() if isinstance(container, dict) else enumerate(container)
        for number, (name, entry) in enumerate(list(named)):
            if self._may_hold(entry):
                below = f"{path}[{name!r}]" if type(name) in PLAIN else f"{path}[{number}]"
                if isinstance(container, set | frozenset):
                    self._part(entry, below, depth + 1)
                    continue
                if self._is_moving(entry):
                    self._outside(self._slot(below, container, name, entry))
                self._go_into(entry, below, depth + 1, grown)
        for number, key in enumerate(_keys_of(container)):
            self._part(key, f"{path}.keys()[{number}]", depth + 1)

    def _crowd(self, container: Any, path: str, depth: int) -> None:
        """Of objects that are too many to be looked at one by one."""
        if names := self._crowd_in(container):
            crowd = {"crowd": Crowd(container, names, held_by)}
            first = min(map(min, names.values()))
            self._outside(self._slot(f"{path}[...].{first}", crowd, "crowd", None))
            for kind in sorted(names, key=attrgetter("__qualname__")):
                self._go_into(kind, kind.__name__, depth + 1)

    def _crowd_in(self, container: Any) -> dict[type, Collection[str]]:
        """Classes of what a large container has, with the names of what counts there."""
        seen = () if isinstance(container, set | frozenset) else seen_of(container)
        return {kind: names for kind, names in self._counts_in(seen, 0).items() if names}

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
                known |= self._source.by_others & held_by(one).keys()
                below += [(kind, name, value) for name, value in held_by(one).items()]
        found = {kind: self._that_count(kind, names) for kind, names in found.items()}
        inner: dict[type, set[str]] = {}
        if below and depth < CROWD_DEPTH_MAX:
            inner = self._counts_in([value for _, _, value in below], depth + 1)
        for kind, name, value in below:
            if inner.get(type(value)) and f".{name}" not in self._source.clocks:
                found[kind].add(name)
        return inner | found

    def _varies(self, name: str, value: object) -> bool:
        """Whether what code reads by that name may be another later: an attribute, or a global."""
        if name in self._source.attributes.keys() | self._source.globals | self._trained:
            return True
        kind = type(value)
        if issubclass(kind, (*TRAINED, nn.Parameter)) or self._is_moving(value):
            return kind not in _FUNCTIONS and kind is not CACHE
        return name in self._source.changed and changes_in_place(value)

    def _stored_by(self, kind: type) -> set[str]:
        """By methods of its own; and by others, as far as the class knows of it."""
        own = [one for one in kind.__mro__ if self._is_own(one)]
        known = set[str]().union(*(vars(one) for one in own), slots_of(kind))
        stored = (self._source.by_class.get(one.__name__, set()) for one in own)
        return (self._source.by_others & known).union(*stored)

    def _that_count(self, kind: type, names: set[str]) -> set[str]:
        left = names - self._temporary(kind, names)
        return {one for one in left if f".{one}" not in self._source.clocks}

    def _attributes(self, owner: object, path: str, depth: int) -> None:
        """Of an object of the script's own class."""
        self._objects += 1
        kind, held = type(owner), held_by(owner)
        self._trained |= {name for name, one in held.items() if issubclass(type(one), TRAINED)}
        self._go_into(kind, kind.__name__, 0)
        counting = self._counting(kind, slots_of(kind))
        for name in sorted(slots_of(kind)):
            slot = self._slot(f"{path}.{name}", owner, name, None)
            value = value_of(slot)
            if name in counting or self._is_moving(value) or self._is_handed(name, value):
                self._outside(slot)
            self._go_into(value, f"{path}.{name}", depth + 1)
        self._layout.sizes.append((held, len(held)))
        counting = self._counting(kind, held)
        for name, value in list(held.items()):
            below = f"{path}.{name}"
            if type(name) is not str or self._is_clock(below, value, kind):
                continue
            counts = name in counting or self._is_moving(value) or self._is_handed(name, value)
            of_torch = name in TABLES and isinstance(owner, nn.Module)  # `Layers` looks at those.
            of_torch = of_torch or (name in _STATE and isinstance(owner, Optimizer))
            if counts and not of_torch and self._is_variable(value):
                self._outside(self._slot(below, held, name, value))
            self._hold(held, name, value, below, depth + 1)
        if self._layout.things.is_own_container(owner):
            for number, entry in enumerate(_entries_of(owner)[:_SMALL]):
                self._part(entry, f"{path}[{number}]", depth + 1)

    def _class(self, kind: type, depth: int) -> None:
        """Attributes of the class itself, and what its functions keep. What it is known by does not
        depend on where it was found."""
        at = self._at
        for one in kind.__mro__:
            if not self._is_own(one) or (one is not kind and self._seen_before(one)):
                continue
            self._at = (short(sys.modules[one.__module__].__file__ or ""), one.__qualname__, 0)
            held: Mapping[str, Any] = vars(one)
            counting = self._counting(one, held)
            self._layout.sizes.append((held, len(held)))
            for name, value in list(held.items()):
                if name.startswith("__") and name.endswith("__") and not callable(value):
                    continue
                function = _function_in(value)
                counts = name in counting or self._is_moving(value)
                counts = counts or self._is_handed(name, value)
                counts = counts and (function is None or name in self._by_others)
                if counts and self._is_variable(value):
                    slot = self._slot(f"{one.__name__}.{name}", held, name, value)
                    slot.of = one
                    self._outside(slot)
                if function is not None:
                    self._go_into(function, f"{one.__name__}.{name}", depth + 1)
                else:
                    self._hold(held, name, value, f"{one.__name__}.{name}", depth + 1)
        for made in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
            self._go_into(made.default_factory, f"{kind.__name__}.{made.name}", depth + 1)
        if type(kind) is not type and self._is_own(type(kind)):
            self._go_into(type(kind), type(kind).__name__, depth + 1)
        self._at = at

    def _function(self, value: FunctionType, path: str, depth: int) -> None:
        """What one of the script's closes over, its attributes and its defaults; also behind a
        decorator."""
        held = held_by(value)
        if (inner := held.get("__wrapped__")) is not None:
            self._go_into(inner, path, depth)
        if not self._is_own_file(value.__code__.co_filename):
            self._closed_over(value, path, depth)
            return
        at, self._at = self._at, _at(value.__code__)
        code, name = value.__code__, value.__name__
        for free, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            self._cell(free, cell, scope_of(code), depth)
        self._hung_on(value, held, name)
        for default in ("__defaults__", "__kwdefaults__"):
            kept = getattr(value, default) or ()
            entries = kept.values() if isinstance(kept, dict) else kept
            if any(self._may_change(one) for one in entries):
                self._outside(self._slot(f"defaults of {name}", value, default, kept))
            for number, one in enumerate(entries):
                self._part(one, f"defaults of {name}[{number}]", depth + 1)
        self._at = at

    def _closed_over(self, value: FunctionType, path: str, depth: int) -> None:
        """By a function of others: what of the script's it was made with, as a registry has it."""
        for cell in value.__closure__ or ():
            with suppress(ValueError):
                content = cell.cell_contents
                if self._holds_own(content):
                    self._go_into(content, path, depth + 1)

    def _method(self, value: Any, path: str, depth: int) -> None:
        """Its function, and what it belongs to, which nothing else may hold."""
        owner = value.__self__
        self._go_into(getattr(value, "__func__", None), path, depth)
        self._part(owner, path, depth)

    def _part(self, value: object, path: str, depth: int) -> None:
        """What lies where nothing can be stored by a name."""
        if self._is_moving(value):
            self._outside(self._slot(path, {"self": value}, "self", value))
        if self._may_hold(value):
            self._go_into(value, path, depth)

    def _cell(self, name: str, cell: CellType, scope: Scope, depth: int) -> None:
        if id(cell) in self._seen or name in scope.clocks or name == "__class__":
            return
        self._seen.add(id(cell))
        self._held.append(cell)
        try:
            content = cell.cell_contents
        except ValueError:
            return
        if self._is_variable(content):
            self._outside(self._slot(name, cell, name, content))
        if self._may_hold(content):
            self._go_into(content, name, depth)

    def _module_of_torch(self, value: nn.Module, path: str, depth: int) -> None:
        """Attributes and hooks of it, and of the modules in it."""
        found: list[tuple[str, nn.Module | None]] = [(path, value)]
        while found and self._objects < OBJECTS_MAX:
            below, part = found.pop()
            if part is None or (part is not value and self._seen_before(part)):
                continue
            if self._is_own(type(part)):
                self._attributes(part, below, depth)
            else:
                held = held_by(part)
                self._hung_on(part, held, below)
                for name, one in list(held.items()):
                    if self._is_own(type(one)) and not issubclass(type(one), nn.Module):
                        self._hold(held, name, one, f"{below}.{name}", depth + 1)
            self._hooks(part, below, depth)
            for name, tensor in tensors_of(part).items():
                if tensor is not None:
                    self._tensor(tensor, f"{below}.{name}", depth)
            found += [(f"{below}.{name}", one) for name, one in parts_of(part).items()]

    def _tensor(self, value: Tensor, path: str, depth: int) -> None:
        """What the script has hung on it, and what it calls as its gradient comes."""
        held = held_by(value)
        if held or self._source.by_others:
            self._hung_on(value, held, path)
        for name, one in list(held.items()):
            if self._is_own(type(one)):
                self._hold(held, name, one, f"{path}.{name}", depth + 1)
        for number, hook in enumerate(hooks_of(value)):
            self._go_into(hook, f"{path}'s hook {number}", depth + 1)

    def _hooks(self, owner: object, path: str, depth: int) -> None:
        """Of a module or an optimizer: torch has each kind in a dict or a list of its own, a hook
        for communication with what it is given."""
        for name, hooks in list(held_by(owner).items()):
            if name.endswith("_hooks") and isinstance(hooks, dict | list) and hooks:
                for hook in list(hooks.values() if isinstance(hooks, dict) else hooks):
                    for one in hook if type(hook) is tuple else (hook,):
                        self._go_into(one, f"{path}'s hook", depth + 1)

    def _object_of_others(
        self, value: object, path: str, depth: int, grown: frozenset[str] | None = None
    ) -> None:
        """Of a class that is not the script's: what the script has hung on it, and the objects of
        the script's that it has. grown: as in `_go_into`"""
        held = held_by(value)
        self._hung_on(value, held, path)
        self._kept_by_library(value, held, path, depth, grown)
        kind: Any = type(value)
        within = (grown or frozenset()) | grown_in(kind) if is_of_library(kind) else grown
        self._hooks(value, path, depth)
        self._objects += 1
        is_made_of = module_of(kind).startswith((*_PARTS, _OURS))
        for name, one in [*held.items(), *_in_slots(value)]:
            if name in held and (is_generator(one) or issubclass(type(one), C_DATA)):
                self._outside(self._slot(f"{path}.{name}", held, name, one))
            if within and name in within and type(one) in _CONTAINER_TYPES and not one:
                self._layout.sizes.append((one, 0))  # Objects may come into it.
            if is_made_of or self._holds(one, self._is_inside):
                if name in held and self._grown_in(one, within):
                    self._layout.children.append((held, name, one))  # Others come in its place.
                self._go_into(one, f"{path}.{name}", depth + 1, within)
        for key, one in self._layout.things.inside(value):
            self._part(one, f"{path}[{key!r}]", depth + 1)

    def _kept_by_library(
        self,
        owner: object,
        held: dict[str, Any],
        path: str,
        depth: int,
        grown: frozenset[str] | None,
    ) -> None:
        """Plain values in which an object of a library's keeps how it was used: calls counted. What
        gives the batches has given those that come before.

        grown: as in `_go_into`. In an object of such an object only what is made out of what it was
        counts: nobody knows in which order a library's parts write and read all else.
        """
        kind: Any = type(owner)
        if any(owner is one for one in self._loaders):
            return
        counted = self._counted_by(kind) if grown is None else self._grown_in(owner, grown)
        if counted or grown is not None:  # What its class has a value for may be stored later.
            self._layout.sizes.append((held, len(held)))
        for name in sorted(counted & {*held, *slots_of(kind)}):
            slot = self._slot(f"{path}.{name}", held if name in held else owner, name, None)
            if self._is_variable(now_in(slot)):
                self._outside(slot)
            self._taken_in(now_in(slot), path, depth)

    def _taken_in(self, table: object, path: str, depth: int) -> None:
        """What the script stores to by names that a library's object has in a table of its own,
        each in an object: `config.lr = 0.1`. And what lies in tables below."""
        if type(table) is not dict or len(table) > _SMALL:
            return
        kinds = {*map(type, table.values())}
        if not kinds or any(map(self._counted_by, kinds)):
            self._layout.sizes.append((table, len(table)))
        for name, one in list(table.items()):
            counted = self._counted_by(type(one))
            holds = any(type(held_by(one).get(below)) is dict for below in counted)
            if counted and (holds or name in self._source.by_others):
                self._hold(table, name, one, f"{path}.{name}", depth + 1)

    def _counted_by(self, kind: type) -> Set[str]:
        """Attributes in which an object of a library's keeps how it was used; of what only shows
        it, those that the script asks for. Where loaders stand is known."""
        if module_of(kind).startswith(_PARTS):
            return frozenset()
        if only_shows(kind):
            return stored_in(kind) & self._asked
        return stored_in(kind) if is_closed(kind) else frozenset()

    def _grown_in(self, value: object, grown: frozenset[str] | None) -> Set[str]:
        """Of an object of such an object, what it has: see `_kept_by_library`."""
        kind: Any = type(value)
        if grown is None or not _is_state(kind):
            return frozenset()
        known = (grown | grown_in(kind)) & {*held_by(value), *slots_of(kind)}
        return known - clocks_in(kind) if known else known

    def _is_container(self, kind: type) -> bool:
        """One of Python's, or of a library's made out of it; what the script makes out of one has
        attributes, too."""
        if kind in _CONTAINER_TYPES:
            return True
        return issubclass(kind, _CONTAINERS) and not self._is_own(kind)

    def _is_inside(self, kind: type) -> bool:
        """Whether what an object of others has of that kind is looked into: what is the script's
        own, what batches are made of, and the objects of libraries that it is made of. Those that
        give batches are loaders of other loops than these."""
        own = self._is_own(kind) or kind in _FUNCTIONS
        of_library = _is_state(kind) and not issubclass(kind, DataLoader)
        return own or module_of(kind).startswith(_PARTS) or of_library

    def _holds_own(self, value: Any) -> bool:
        return self._holds(value, lambda kind: self._is_own(kind) or kind is FunctionType)

    def _holds(self, value: Any, wanted: Callable[[type], bool], depth: int = 0) -> bool:
        """Whether it is one of these, or a container of such."""
        if not self._is_container(type(value)):
            return wanted(type(value))
        if depth > _NESTED_MAX or len(value) > _SMALL:
            return False
        return any(self._holds(one, wanted, depth + 1) for one in _held_in(value))

    def _hung_on(self, owner: object, held: dict[str, Any], path: str, depth: int = 0) -> None:
        """Attributes that the script stores on an object that is none of its own."""
        if self._source.by_others and type(owner) is not ModuleType:
            self._layout.sizes.append((held, len(held)))
        stored = self._source.by_others & held.keys()
        if type(owner) in _NAMESPACES:
            stored |= {name for name, one in held.items() if self._is_handed(name, one)}
        stored -= self._temporary(type(owner), stored)
        if issubclass(type(owner), Optimizer):
            stored -= _STATE
        for name in sorted(stored):
            is_clock = self._is_clock(f".{name}", held[name])
            if not is_clock and self._is_variable(held[name]):
                self._outside(self._slot(f"{path}.{name}", held, name, held[name]))
            self._hold(held, name, held[name], f"{path}.{name}", depth + 1)

    # --- the parts of that ------------------------------------------------------------------------

    def _slot(self, path: str, owner: Any, name: Any, value: object) -> Slot:
        file, function, first = self._at
        key = f"{file}\x1f{function}\x1f{first}\x1f{path}"
        by_hooks = id(owner) in self._by_hooks or id(value) in self._by_hooks
        if by_hooks or any(value is obj for _, obj in self._tracked):
            self._layout.tracked.append(key)
        is_dict = issubclass(type(owner), dict | NoneType | MappingProxyType)
        target = name in self._source.targets
        return Slot(key, owner, name, is_secret(path, value), target=target, is_asked=not is_dict)

    def _outside(self, slot: Slot) -> None:
        if self._slots_left:
            self._slots_left -= 1
            self._layout.outside.append(slot)

    def _counting(self, kind: type, names: Iterable[str]) -> set[str]:
        """Attributes of such an object that are stored to after the set-up: any, if their names are
        made up."""
        found = {name for name in names if type(name) is str}
        computed = {name: one.func for name, one in computed_in(kind).items() if name in found}
        if not self._source.dynamic:
            found &= self._source.attributes.keys()
        found -= self._temporary(kind, found)
        return found | {name for name, one in computed.items() if relies_on_more(one, self._varies)}

    def _is_handed(self, name: object, value: object) -> bool:
        """Whether it may be changed where no store to the attribute shows."""
        known = is_handed(self._source, name) and name not in self._source.attributes
        return known and changes_in_place(value)

    def _temporary(self, kind: type, names: set[str]) -> set[str]:
        """Those that are worth nothing between two steps: nobody reads them before they are written
        anew, nor does the code of others that such an object has."""
        brief = names & self._source.temporary
        others = [one for one in kind.__mro__ if brief and not self._is_own(one)]
        return worthless(brief, others)

    def _is_variable(self, value: object) -> bool:
        if type(value) in PLAIN or is_generator(value):
            return True
        return entry_of(value, things=self._layout.things) is not NO_VALUE

    def _may_change(self, value: object) -> bool:
        """Whether it can be changed with no store to what holds it."""
        if type(value) in PLAIN or self._layout.things.stays(value):
            return False
        return self._is_variable(value)

    def _tells_time(self, name: str, scope: Scope, value: object) -> bool:
        """Whether a name holds the time, or something of the machine. Of an object that was made
        with it, as a log in a folder of this run, that says little: it may hold anything."""
        if name not in scope.clocks:
            return False
        return name in scope.apart or not self._may_keep(value)

    def _is_clock(self, path: str, value: object, kind: type | None = None) -> bool:
        """The same of an attribute, and of a part. kind: of the object that has it"""
        last = path[path.rfind(".") :] if "." in path else path
        if last not in self._source.clocks and not (kind and self._tells_in(kind, last[1:])):
            return False
        return last in self._source.apart or not self._may_keep(value)

    def _may_keep(self, value: object) -> bool:
        """Whether more than what it was made with may be in it."""
        return self._is_own(type(value)) or self._is_moving(value)

    def _tells_in(self, kind: type, name: str) -> bool:
        own = [one.__name__ for one in kind.__mro__ if self._is_own(one)]
        return name in self._source.told and tells_in(self._source, name, own)

    def _seen_before(self, value: object) -> bool:
        if id(value) in self._seen:
            return True
        self._seen.add(id(value))
        self._held.append(value)
        return False


def handed_on(source: Source, held: Mapping[str, Any]) -> set[str]:
    """Attributes of an object that others may change in place, as far as they can be filled where
    they are: tensors, and containers of plain values. Tensors in a list may be those of a layer."""
    names = source.handed.keys() & held.keys() - source.attributes.keys() - TABLES - _STATE
    return {
        name
        for name in names
        if changes_in_place(held[name]) and (isinstance(held[name], Tensor) or _is_flat(held[name]))
    }


def _is_flat(value: object) -> bool:
    return type(value) in (list, dict, set, deque) and {*map(type, _entries_of(value))} <= PLAIN


def _is_trained(value: Any) -> bool:
    """A tensor that is no Parameter, as the temperature that an optimizer learns: only torch's own
    code stores to it."""
    is_tensor = issubclass(type(value), Tensor) and not issubclass(type(value), nn.Parameter)
    return bool(is_tensor and value.requires_grad and value.is_leaf)


def is_handed(source: Source, name: object) -> bool:
    """Whether objects of others may have what an attribute of that name holds."""
    return name in source.handed or ANY in source.handed


def changes_in_place(value: object) -> bool:
    """Whether it is a container, or memory, and is not trained."""
    kind = type(value)
    if issubclass(kind, nn.Parameter) or kind in (tuple, frozenset):
        return False
    return issubclass(kind, (*_CONTAINERS, Tensor, numpy.ndarray, bytearray, array.array))


class OwnTypes:
    """Whether a class is of the script's own code."""

    def __init__(self, is_own_file: Callable[[str], bool]) -> None:
        self._is_own_file = is_own_file
        self._known: dict[type, bool] = {}

    def __call__(self, kind: type) -> bool:
        if kind not in self._known:
            module = sys.modules.get(module_of(kind))
            path = getattr(module, "__file__", None) or ""
            self._known[kind] = bool(path) and self._is_own_file(path)
        return self._known[kind]


def _flattened(state: Any, depth: int) -> list[tuple[Any, Any]]:
    """Names and values of a state_dict(), and of dicts in it."""
    if not issubclass(type(state), dict):
        return []
    inner = [one for value in state.values() if depth for one in _flattened(value, depth - 1)]
    return [*state.items(), *inner]


def _is_looked_at(source: Source, name: str, value: object) -> bool:
    """An attribute that is a variable by itself, or tells the time."""
    if name in source.attributes or f".{name}" in source.clocks:
        return True
    return is_handed(source, name) and changes_in_place(value)


def _entries_of(container: Any) -> list[Any]:
    """Of a container, or of an object of a class made out of one."""
    kind = type(container)
    if issubclass(kind, dict):
        return list(dict.values(container))
    base = next(one for one in _CONTAINERS if issubclass(kind, one))
    return list(base.__iter__(container))


def _keys_of(container: Any) -> list[Any]:
    """Of a dict, but for plain ones."""
    keys = dict.keys(container) if issubclass(type(container), dict) else ()
    return [key for key in keys if type(key) not in PLAIN]


def _held_in(container: Any) -> list[Any]:
    return [*_entries_of(container), *_keys_of(container)]


def _function_in(value: object) -> object | None:
    """A function, or what is in a method or a property of a class."""
    kind = type(value)
    if kind in (staticmethod, classmethod):
        return value.__func__  # type: ignore[attr-defined, no-any-return]
    if kind is property:
        return value.fget  # type: ignore[attr-defined, no-any-return]
    return value if kind is FunctionType else None


def _is_state(kind: type) -> bool:
    """Whether it is of a library, and may keep anything. Where loaders stand is known."""
    return is_closed(kind) and not module_of(kind).startswith(_PARTS)


def _in_slots(value: object) -> Iterator[tuple[str, Any]]:
    for name in sorted(slots_of(type(value))):
        with suppress(AttributeError):
            yield name, object.__getattribute__(value, name)


def short(path: str) -> str:
    """The same on all machines, wherever the script lies there."""
    return os.sep.join(path.split(os.sep)[-2:])


def _at(code: CodeType) -> tuple[str, str, int]:
    first = 0 if code.co_name == "<module>" else code.co_firstlineno
    return short(code.co_filename), code.co_name, first
