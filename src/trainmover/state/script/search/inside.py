# SPDX-License-Identifier: Apache-2.0
"""What may hold something of the script's, gone into: containers, objects and classes of its own,
functions with what they close over, their defaults and attributes, partials and methods, modules
with their hooks, and objects of libraries. Each once, and so many.
"""

import dataclasses
import functools
import logging
import os
import re
import sys
import threading
from argparse import Namespace
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import AsyncExitStack, ExitStack, suppress
from operator import attrgetter, itemgetter
from types import (
    CellType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    ModuleType,
    NoneType,
    SimpleNamespace,
)
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from trainmover.state.kinds.generators import is_generator
from trainmover.state.kinds.parallel.hooks import Hooks, stays
from trainmover.state.script import brief, handles
from trainmover.state.script.code.grammar import is_special
from trainmover.state.script.code.scopes import Scope, Source
from trainmover.state.script.code.source import scope_of
from trainmover.state.script.search.contents import (
    CONTAINERS,
    OF_OPTIMIZERS,
    changes_in_place,
    entries_of,
    function_in,
    held_in,
    is_handed,
    is_large,
    is_trained,
    keys_of,
)
from trainmover.state.script.search.counting import (
    CONTAINER_TYPES,
    FUNCTIONS,
    NESTED_MAX,
    SMALL,
    Counting,
)
from trainmover.state.script.search.layout import (
    Layout,
    Slot,
    at_of,
    now_in,
    short,
    value_of,
)
from trainmover.state.script.things.crowds import Crowd
from trainmover.state.script.things.held import called_by, held_by, slots_in, slots_of
from trainmover.state.script.things.libraries import (
    OwnTypes,
    clocks_in,
    file_of,
    grown_in,
    is_like_array,
    is_of_library,
    module_of,
    only_shows,
    stored_in,
)
from trainmover.state.script.things.readers import BOUND, C_DATA, CACHE, results_of
from trainmover.state.script.things.things import NUMBERS, is_closed
from trainmover.state.script.things.untracked import TRAINED
from trainmover.state.script.values import PLAIN, is_secret
from trainmover.torch_internals.modules import OF_MODULES, TABLES, hooks_of, parts_of, tensors_of

SLOTS_MAX = 512
WATCHED_MAX = BRIEF_MAX = 2048
OBJECTS_MAX = 512
"""In what is tracked, and as many in all else."""
DEPTH_MAX, _DEEP = 12, 6
_OURS = __name__.partition(".")[0]
_NO_PLACE = re.compile(r"\{|\[\d{9}|keys\(\)")
"""In a path: an entry of a set, or by an address, or a key."""
_SAID = frozenset({"msg", "args", "levelno", "message"})
"""Of a record of the log, what was said: not when, and by which process."""
_NAMESPACES = (Namespace, SimpleNamespace)
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_PARTS = ("torch.utils.data", "torchdata", "torchvision.transforms")
"""Packages whose objects are made out of the script's: what they have is looked into."""


class Inside:
    """Of one search. What it finds goes into `layout`.

    is_own      whether a class is of the script's own code
    counting    what counts
    at          file, function and first line that keys of what is found begin with
    caches      functions with a cache that were found: where, by which path
    slots_left  how many variables more are noted
    apart       ids of tracked objects that come later, each in its own turn
    """

    def __init__(
        self,
        layout: Layout,
        source: Source,
        is_own_file: Callable[[str], bool],
        is_own: OwnTypes,
        tracked: list[tuple[str, object]],
        loaders: list[object],
        samplers: Iterable[object],
        in_place: set[str],
    ) -> None:
        """loaders: what gives the batches of the loops under way is made of
        samplers: of those loops
        in_place: keys of what has changed though nothing was stored to it, or may have
        """
        self._layout = layout
        self._source = source
        self._is_own_file = is_own_file
        self.is_own = is_own
        self.counting = Counting(source, layout.things, is_own)
        self._tracked = tracked
        self._loaders = loaders
        self._in_samplers = {id(held) for one in samplers if (held := held_by(one))}
        self._in_place = in_place
        self._of_several, self._globals = set[str](), set[int]()
        modules: list[Any] = [obj for _, obj in tracked if issubclass(type(obj), nn.Module)]
        by_hooks = [(id(one), whole) for obj in modules for one, whole in Hooks(obj).holders()]
        self._by_hooks = {number for number, _ in by_hooks}
        self._partly_by_hooks = {number for number, whole in by_hooks if not whole}
        self._seen: set[int] = set()
        self._fed: set[int] = set()
        self._by_key: dict[str, list[tuple[int, Any]]] = {}
        self._held: list[object] = []  # So that no other object gets an id that was seen.
        self.caches: list[tuple[tuple[str, str, int], str, Any]] = []
        self._last: deque[tuple[tuple[str, str, int], tuple[Any, ...]]] = deque()
        self.apart: set[int] = set()
        self.at: tuple[str, str, int] = ("", "", 0)
        self._by_others = source.by_others - source.temporary
        self._asked = source.asked | {f"_{name}" for name in source.asked}  # Of properties.
        self.begin_anew()

    def know(self, modules: Iterable[ModuleType]) -> None:
        """The script's own. Files may have the same short name, as `layers/__init__.py` in two
        packages, or one was imported under two names."""
        files = Counter(short(module.__file__ or "") for module in modules)
        self._of_several = {file for file, many in files.items() if many > 1}
        self._globals = {id(vars(module)) for module in modules}

    def at_of(self, path: str, module: str, name: str) -> tuple[str, str, int]:
        """What keys of what is found in a module begin with. name: within it"""
        file = short(path)
        return file, f"{module}:{name}" if file in self._of_several else name, 0

    def begin_anew(self) -> None:
        """As many objects and variables again."""
        self._objects, self.slots_left = 0, SLOTS_MAX

    def hold(
        self,
        held: Mapping[str, Any],
        name: str,
        value: object,
        path: str,
        depth: int,
        grown: frozenset[str] | None = None,
    ) -> None:
        """Go into it; and know that it is to stand there still. grown: as in `go_into`"""
        if self.may_hold(value):
            if self.anchors(value):
                self._layout.children.append((held, name, value))
            self.go_into(value, path, depth, grown)

    # --- what they hold ---------------------------------------------------------------------------

    def may_hold(self, value: object, depth: int = 0) -> bool:
        kind = type(value)
        if kind in PLAIN:
            return False
        if issubclass(kind, ModuleType):  # One that the script has made is a namespace.
            return sys.modules.get(vars(value).get("__name__", "")) is not value
        if issubclass(kind, Tensor):
            return bool(held_by(value) or hooks_of(value)) or is_trained(value)  # type: ignore[arg-type]
        if kind is numpy.ndarray:
            return bool(value.dtype.hasobject)  # type: ignore[attr-defined]
        if module_of(kind).startswith(_OURS) or handles.is_one(kind) or is_like_array(kind):
            return False
        if self.counting.is_container(kind):
            if depth >= NESTED_MAX or len(value) > SMALL:  # type: ignore[arg-type]
                return bool(self.counting.in_crowd(value))
            made_by = value.default_factory if isinstance(value, defaultdict) else None
            return any(self.may_hold(entry, depth + 1) for entry in (made_by, *held_in(value)))
        if kind in FUNCTIONS or issubclass(kind, nn.Module):
            return True
        if self.is_own(kind) or issubclass(kind, type) or self.counting.is_moving(value):
            return True
        if held_by(value) or self._may_count(kind) or self._may_get(kind):
            return True
        return bool(called_by(value))

    def _may_count(self, kind: type) -> bool:
        """Whether an object of that kind is a library's, and may keep how it was used."""
        return _is_state(kind) or bool(self._counted_by(kind))

    def _may_get(self, kind: type) -> bool:
        """Whether the script may hang something on such an object that has no attribute yet."""
        return bool(self._source.by_others) and issubclass(kind, threading.local)

    def anchors(self, value: object, depth: int = 0) -> bool:
        """Whether another object in its place may hold other variables of the script's. Others come
        and go with each step."""
        kind = type(value)
        if self.counting.is_container(kind):
            if depth >= NESTED_MAX or len(value) > SMALL:  # type: ignore[arg-type]
                return bool(self.counting.in_crowd(value))
            return any(self.anchors(entry, depth + 1) for entry in held_in(value))
        if kind in FUNCTIONS or issubclass(kind, nn.Module) or self.is_own(kind):
            return True
        if GeneratorType in {*map(type, held_by(value).values())}:
            return True
        return bool(self._counted_by(kind) or called_by(value))

    def go_into(
        self, value: object, path: str, depth: int, grown: frozenset[str] | None = None
    ) -> None:
        """What may hold something of the script's, below `value`; each once.

        grown: attributes that a library's object that holds it makes out of what they were

        What libraries' objects hold, and what lies deep, comes last: the script may hold it nearer,
        and no tree of many objects is to be in the way of all else.
        """
        self._note_place(value, path)
        of_library = self.counting.is_container(type(value)) or _is_state(type(value))
        if depth >= _DEEP or (grown is not None and of_library):
            self._last.append((self.at, (value, path, depth, grown)))
        else:
            self._look_into(value, path, depth, grown)

    def _note_place(self, value: object, path: str) -> None:
        """Of functions those that close over something: others are told by what they do."""
        if not self._layout.things.places.is_open:
            return
        kind = type(value)
        if kind is FunctionType:
            is_one = bool(value.__closure__)  # type: ignore[attr-defined]
        else:
            is_one = self.is_own(kind) and not issubclass(kind, TRAINED)
        if is_one and not _NO_PLACE.search(path):
            self._layout.things.places.note(value, f"{self.at[0]} {self.at[1]} {path}")

    def go_into_last(self) -> None:
        while self._last:
            self.at, last = self._last.popleft()
            self._look_into(*last)

    def _look_into(
        self, value: object, path: str, depth: int, grown: frozenset[str] | None
    ) -> None:
        if (
            depth >= DEPTH_MAX
            or self._objects >= OBJECTS_MAX
            or (self.counting.is_clock(path, value) and not self.is_fed(path, value))
        ):
            return
        if id(value) in self.apart or self.seen_before(value):
            return
        kind = type(value)
        if self.counting.is_container(kind):
            self._entries(value, path, depth, grown)
        elif kind is FunctionType:
            self._function(value, path, depth)  # type: ignore[arg-type]
        elif kind in BOUND:
            self._method(value, path, depth)
        elif kind is CACHE:
            self._object_of_others(value, path, depth)
            self.caches.append((self.at, path, value))
            for one in results_of(value):
                self.go_into(one, f"{path}()", depth + 1)
        elif issubclass(kind, functools.partial):
            self.hung_on(value, held_by(value), path)
            for one in (value.func, value.args, value.keywords):  # type: ignore[attr-defined]
                self.go_into(one, path, depth + 1)
        elif issubclass(kind, type):
            self._class(value, depth)  # type: ignore[arg-type]
        elif issubclass(kind, nn.Module):
            self._module_of_torch(value, path, depth)  # type: ignore[arg-type]
        elif self.is_own(kind):
            self._attributes(value, path, depth)
        elif issubclass(kind, Tensor):
            self._tensor(value, path, depth)  # type: ignore[arg-type]
        else:
            self._object_of_others(value, path, depth, grown)
            for function in called_by(value):
                self.go_into(function, path, depth + 1)

    def _entries(self, container: Any, path: str, depth: int, grown: frozenset[str] | None) -> None:
        if len(container) > SMALL:
            self._crowd(container, path, depth)
            return
        if not isinstance(container, tuple | frozenset):
            self._layout.sizes.append((container, len(container)))
        named = container.items() if isinstance(container, dict) else enumerate(container)
        for number, (name, entry) in enumerate(list(named)):
            if self.may_hold(entry):
                below = f"{path}[{name!r}]" if type(name) in PLAIN else f"{path}[{number}]"
                if isinstance(container, set | frozenset):  # In whatever order.
                    self._part(entry, f"{path}{{{number}}}", depth + 1)
                    continue
                if self.counting.is_moving(entry):
                    self.outside(self.slot(below, container, name, entry))
                self.go_into(entry, below, depth + 1, grown)
        for number, key in enumerate(keys_of(container)):
            self._part(key, f"{path}.keys()[{number}]", depth + 1)
        if isinstance(container, defaultdict):
            self._part(container.default_factory, f"{path}.default_factory", depth + 1)

    def _crowd(self, container: Any, path: str, depth: int) -> None:
        """Of objects that are too many to be looked at one by one."""
        if names := self.counting.in_crowd(container):
            crowd = {"crowd": Crowd(container, names, held_by)}
            first = min(map(min, names.values()))
            self.outside(self.slot(f"{path}[...].{first}", crowd, "crowd", None))
            for kind in sorted(names, key=attrgetter("__qualname__")):
                self.go_into(kind, kind.__name__, depth + 1)

    def is_fed(self, path: str, value: object, scope: Scope | None = None) -> bool:
        """As in `Counting`. From here on, whichever way it is reached: of what it keeps of what it
        is given nothing counts, and the rest of its plain values goes along, as what is brief does,
        for most of them are only shown."""
        is_one = self.counting.is_fed(path, value, scope)
        if is_one:
            self._fed.add(id(value))
            self._held.append(value)
        return is_one

    def _attributes(self, owner: object, path: str, depth: int) -> None:
        """Of an object of the script's own class, which may be derived from one of a library's."""
        self._objects += 1
        within = grown_in(type(owner))
        kind, held = type(owner), held_by(owner)
        self.counting.trained |= {
            name for name, one in held.items() if issubclass(type(one), TRAINED)
        }
        self.go_into(kind, kind.__name__, 0)
        if "__class__" in self._source.attributes:  # It becomes one of another.
            self.outside(self.slot(f"{path}.__class__", owner, "__class__", kind))
        counting = self.counting.stored(kind, slots_of(kind))
        is_fed = id(owner) in self._fed
        told = self.counting.keeps(kind) if is_fed else set[str]()
        for name in sorted(slots_of(kind) - told):
            below = f"{path}.{name}"
            value = value_of(Slot("", owner, name, secret=False))
            stored = name in counting and not is_fed
            there = self.counting.only_there(below, value, kind)
            self._attribute(below, owner, name, value, stored=stored, there=there)
            self.go_into(value, below, depth + 1)
        self._layout.sizes.append((held, len(held)))
        counting = self.counting.stored(kind, held)
        of_library = not all(one is object or self.is_own(one) for one in kind.__mro__)
        for name, value in list(held.items()):
            below = f"{path}.{name}"
            if type(name) is not str or name in told:
                continue
            if self.counting.is_clock(below, value, kind):
                if self.is_fed(below, value):
                    self.hold(held, name, value, below, depth + 1)
                continue
            stored = (name in counting or name in within) and not is_fed
            of_others = not stored and of_library and name[:1] == "_" and type(value) in PLAIN
            if isinstance(owner, nn.Module):  # `Layers` looks at its tables.
                of_others |= name in (TABLES if stored else OF_MODULES)
            of_others |= name in OF_OPTIMIZERS and isinstance(owner, Optimizer)
            if not of_others:
                there = self.counting.only_there(below, value, kind)
                self._attribute(below, held, name, value, stored=stored, there=there)
            self.hold(held, name, value, below, depth + 1, within or None)
        if not issubclass(kind, CONTAINERS):
            self._from_class(owner, path)
        if self._layout.things.is_own_container(owner):
            if len(entries := entries_of(owner)) > SMALL:
                self._crowd(owner, path, depth)
            for number, entry in enumerate(entries[:SMALL]):
                self._part(entry, f"{path}[{number}]", depth + 1)

    def _from_class(self, owner: object, path: str) -> None:
        """Attributes of an object that its class has, and that it may get itself."""
        kind, held = type(owner), held_by(owner)
        own = [vars(one) for one in reversed(kind.__mro__) if self.is_own(one)]
        shared = {name: value for one in own for name, value in one.items() if name not in held}
        for name in sorted(self.counting.stored(kind, shared)):
            below = f"{path}.{name}"
            if type(shared[name]) in PLAIN and not self.counting.is_clock(below, None, kind):
                slot = self.slot(below, owner, name, None)
                slot.inherited, slot.there = True, self.counting.only_there(below, None, kind)
                self._layout.inherited.append(slot)
                self.outside(slot)

    def _class(self, kind: type, depth: int) -> None:
        """Attributes of the class itself, and what its functions keep. What it is known by does not
        depend on where it was found."""
        at = self.at
        for one in kind.__mro__:
            if not self.is_own(one) or (one is not kind and self.seen_before(one)):
                continue
            self.at = self.at_of(file_of(one), one.__module__, one.__qualname__)
            held: Mapping[str, Any] = vars(one)
            if "__bases__" in self._source.attributes:
                self.outside(self.slot(f"{one.__name__}.__bases__", one, "__bases__", None))
            counting = self.counting.stored(one, held)
            self._layout.sizes.append((held, len(held)))
            for name, value in list(held.items()):
                special = name[:2] == "__" and is_special(name) and not callable(value)
                if special and name not in self._source.attributes:
                    continue
                function = function_in(value)
                path = f"{one.__name__}.{name}"
                if function is None or name in self._by_others:
                    stored = name in counting
                    there = self.counting.only_there(path, value, one)
                    self._attribute(path, held, name, value, stored=stored, of=one, there=there)
                if function is not None:
                    self.go_into(function, path, depth + 1)
                else:
                    self.hold(held, name, value, path, depth + 1)
        for made in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
            self.go_into(made.default_factory, f"{kind.__name__}.{made.name}", depth + 1)
        if type(kind) is not type and self.is_own(type(kind)):
            self.go_into(type(kind), type(kind).__name__, depth + 1)
        self.at = at

    def _function(self, value: FunctionType, path: str, depth: int) -> None:
        """What one of the script's closes over, its attributes and its defaults; also behind a
        decorator."""
        held = held_by(value)
        if (inner := held.get("__wrapped__")) is not None:
            self.go_into(inner, path, depth)
        if not self._is_own_file(value.__code__.co_filename):
            self.hung_on(value, held, path)
            self._closed_over(value, path, depth)
            return
        if id(value.__globals__) not in self._globals and "__file__" in value.__globals__:
            self._globals.add(id(value.__globals__))
            self._layout.unlisted.append(value.__globals__)
        if "__code__" in self._source.attributes:  # It becomes another one.
            self.outside(self.slot(f"{path}.__code__", value, "__code__", None))
        at, self.at = self.at, at_of(value.__code__)
        code, name = value.__code__, value.__name__
        for free, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            self._cell(free, cell, scope_of(code), depth)
        self.hung_on(value, held, name)
        for default in ("__defaults__", "__kwdefaults__"):
            kept = getattr(value, default) or ()
            entries = kept.values() if isinstance(kept, dict) else kept
            stored = default in self._source.attributes
            if stored or any(self.counting.may_change(one) for one in entries):
                self.outside(self.slot(f"defaults of {name}", value, default, kept))
            for number, one in enumerate(entries):
                self._part(one, f"defaults of {name}[{number}]", depth + 1)
        self.at = at

    def _closed_over(self, value: FunctionType, path: str, depth: int) -> None:
        """By a function of others: what of the script's it was made with, as a registry has it."""
        for cell in value.__closure__ or ():
            with suppress(ValueError):
                content = cell.cell_contents
                if self.counting.holds_own(content):
                    self.go_into(content, path, depth + 1)

    def _method(self, value: Any, path: str, depth: int) -> None:
        """Its function, and what it belongs to, which nothing else may hold: `push = [].append`."""
        owner = value.__self__
        self.go_into(getattr(value, "__func__", None), path, depth)
        if changes_in_place(owner) and self.counting.is_variable(owner):
            small, held = _is_small(owner), {"self": owner}
            self.variable(f"{path}.__self__", held, "self", owner, stored=small, by_others=False)
        self._part(owner, path, depth)

    def _part(self, value: object, path: str, depth: int) -> None:
        """What lies where nothing can be stored by a name."""
        if self.counting.is_moving(value):
            self.outside(self.slot(path, {"self": value}, "self", value))
        if self.may_hold(value):
            self.go_into(value, path, depth)

    def _cell(self, name: str, cell: CellType, scope: Scope, depth: int) -> None:
        if id(cell) in self._seen or name == "__class__":
            return
        try:
            content = cell.cell_contents
        except ValueError:
            return
        there = name in scope.there
        tells = name in scope.clocks and not there
        if tells and not self.is_fed(name, content, scope):
            return
        self._seen.add(id(cell))
        self._held.append(cell)
        if not tells and self.counting.is_variable(content):
            slot = self.slot(name, cell, name, content)
            slot.there = there
            self.outside(slot)
        if self.may_hold(content):
            self.go_into(content, name, depth)

    def _module_of_torch(self, value: nn.Module, path: str, depth: int) -> None:
        """Attributes and hooks of it, and of the modules in it."""
        found: list[tuple[str, nn.Module | None]] = [(path, value)]
        while found and self._objects < OBJECTS_MAX:
            below, part = found.pop()
            if part is None or (part is not value and self.seen_before(part)):
                continue
            if self.is_own(type(part)):
                self._attributes(part, below, depth)
            else:
                self.hung_on(part, held_by(part), below, depth)
                self._beside_layers(part, below, depth)
            self._hooks(part, below, depth)
            for name, tensor in tensors_of(part).items():
                if tensor is not None:
                    self._tensor(tensor, f"{below}.{name}", depth)
            found += [(f"{below}.{name}", one) for name, one in parts_of(part).items()]

    def _beside_layers(self, part: nn.Module, path: str, depth: int) -> None:
        """Of a library's module the objects that are no modules, as what allocates ranks to its
        layers and averages for that: no state_dict() has them."""
        if is_of_library(type(part)):
            for name, one in held_by(part).items():
                if _is_state(type(one)) and not isinstance(one, nn.Module | Tensor):
                    self.go_into(one, f"{path}.{name}", depth + 1)

    def _tensor(self, value: Tensor, path: str, depth: int) -> None:
        """What the script has hung on it, and what it calls as its gradient comes."""
        held = held_by(value)
        if held or self._source.by_others:
            self.hung_on(value, held, path, depth)
        for number, hook in enumerate(hooks_of(value)):
            self.go_into(hook, f"{path}'s hook {number}", depth + 1)

    def _hooks(self, owner: object, path: str, depth: int) -> None:
        """Of a module or an optimizer: torch has each kind in a dict or a list of its own, a hook
        for communication with what it is given."""
        for name, hooks in list(held_by(owner).items()):
            if name.endswith("_hooks") and isinstance(hooks, dict | list) and hooks:
                for hook in list(hooks.values() if isinstance(hooks, dict) else hooks):
                    for one in hook if type(hook) is tuple else (hook,):
                        self.go_into(one, f"{path}'s hook", depth + 1)

    def _object_of_others(
        self, value: object, path: str, depth: int, grown: frozenset[str] | None = None
    ) -> None:
        """Of a class that is not the script's: what the script has hung on it, and the objects of
        the script's that it has. grown: as in `go_into`"""
        held = held_by(value)
        self.hung_on(value, held, path)
        self._kept_by_library(value, held, path, depth, grown)
        kind: Any = type(value)
        within = (grown or frozenset()) | grown_in(kind) if is_of_library(kind) else grown
        self._hooks(value, path, depth)
        self._objects += 1
        is_made_of = module_of(kind).startswith((*_PARTS, _OURS))
        is_stack = issubclass(kind, ExitStack | AsyncExitStack)
        for name, one in [*held.items(), *sorted(slots_in(value).items(), key=itemgetter(0))]:
            if name in held and self._moves_in_others(one):
                self.outside(self.slot(f"{path}.{name}", held, name, one))
            may_get = is_stack or (within and name in within)
            if may_get and type(one) in CONTAINER_TYPES and not one:
                self._layout.sizes.append((one, 0))  # Objects may come into it.
            if is_made_of or self.counting.holds(one, self._is_inside):
                if name in held and self._grown_in(one, within):
                    self._layout.children.append((held, name, one))  # Others come in its place.
                self.go_into(one, f"{path}.{name}", depth + 1, within)
        for key, one in self._layout.things.inside(value):
            self._part(one, f"{path}[{key!r}]", depth + 1)

    def _moves_in_others(self, value: object) -> bool:
        """What an object of others may have that changes with no store to it: also a generator of
        the script's, or of torch's, as a context manager has it that is a function."""
        if type(value) is GeneratorType:
            file = value.gi_code.co_filename
            return self._is_own_file(file) or file.startswith(_TORCH)
        return is_generator(value) or issubclass(type(value), C_DATA)

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

        grown: as in `go_into`. In an object of such an object only what is made out of what it was
        counts: nobody knows in which order a library's parts write and read all else.
        """
        kind: Any = type(owner)
        if any(owner is one for one in self._loaders):
            return
        counted = self._counted_by(kind) if grown is None else self._grown_in(owner, grown)
        if counted or grown is not None:  # What its class has a value for may be stored later.
            self._layout.sizes.append((held, len(held)))
        for name in sorted(counted & {*held, *slots_of(kind)}):
            slot = self.slot(f"{path}.{name}", held if name in held else owner, name, None)
            if self.counting.is_variable(now_in(slot)):
                self.outside(slot)
            self._taken_in(now_in(slot), path, depth)

    def _taken_in(self, table: object, path: str, depth: int) -> None:
        """What the script stores to by names that a library's object has in a table of its own,
        each in an object: `config.lr = 0.1`. And what lies in tables below."""
        if type(table) is not dict or len(table) > SMALL:
            return
        kinds = {*map(type, table.values())}
        if not kinds or any(map(self._counted_by, kinds)):
            self._layout.sizes.append((table, len(table)))
        for name, one in list(table.items()):
            counted = self._counted_by(type(one))
            holds = any(type(held_by(one).get(below)) is dict for below in counted)
            if counted and (holds or name in self._source.by_others):
                self.hold(table, name, one, f"{path}.{name}", depth + 1)

    def _counted_by(self, kind: type) -> Set[str]:
        """Attributes in which an object of a library's keeps how it was used; of what only shows
        it, those that the script asks for. Where loaders stand is known."""
        if module_of(kind).startswith(_PARTS):
            return frozenset()
        if logging.LogRecord in kind.__mro__:
            is_asked = "getMessage" in self._source.loaded or not _SAID.isdisjoint(self._asked)
            return _SAID if is_asked else frozenset()
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

    def _is_inside(self, kind: type) -> bool:
        """Whether what an object of others has of that kind is looked into: what is the script's
        own, what batches are made of, and the objects of libraries that it is made of. Those that
        give batches are loaders of other loops than these."""
        own = self.is_own(kind) or kind in FUNCTIONS
        of_library = _is_state(kind) and not issubclass(kind, DataLoader)
        return own or module_of(kind).startswith(_PARTS) or of_library

    def hung_on(self, owner: object, held: dict[str, Any], path: str, depth: int = 0) -> None:
        """Attributes that the script stores on an object that is none of its own."""
        if self._source.by_others and type(owner) is not ModuleType:
            self._layout.sizes.append((held, len(held)))
        stored = self._source.by_others & held.keys()
        temporary = self.counting.temporary(type(owner), stored)
        stored -= temporary
        if issubclass(type(owner), Optimizer):
            stored -= OF_OPTIMIZERS
        for name in sorted(temporary) if type(owner) not in _NAMESPACES else ():
            self._note_brief(f"{path}.{name}", held, name, held[name])
        for name in sorted(stored):
            is_clock = self.counting.is_clock(f".{name}", held[name])
            if not is_clock and self.counting.is_variable(held[name]):
                slot = self.slot(f"{path}.{name}", held, name, held[name])
                slot.there = self.counting.only_there(f".{name}", held[name], None)
                self.outside(slot)
            self.hold(held, name, held[name], f"{path}.{name}", depth + 1)
        if issubclass(type(owner), ModuleType):
            return
        for name in sorted(held.keys() - stored):
            if type(owner) in _NAMESPACES:
                self._attribute(f"{path}.{name}", held, name, held[name], stored=False)
                self.hold(held, name, held[name], f"{path}.{name}", depth + 1)
            else:
                self._hung_before(held, name, f"{path}.{name}", depth)

    def _hung_before(self, held: dict[str, Any], name: str, path: str, depth: int) -> None:
        """What the script may have hung on an object of others in its set-up, and changes later."""
        value = held[name]
        if self.is_own(type(value)) or type(value) in FUNCTIONS:
            self.hold(held, name, value, path, depth + 1)
        elif name in self._source.hung and self.counting.is_handed(name, value):
            self.variable(path, held, name, value, stored=False, by_others=True)

    # --- the parts of that ------------------------------------------------------------------------

    def slot(self, path: str, owner: Any, name: Any, value: object) -> Slot:
        file, function, first = self.at
        key = self._one_of(f"{file}\x1f{function}\x1f{first}\x1f{path}", owner, name)
        if (
            self._goes_with_hook(owner, value)
            or self._goes_with_state(value)
            or self._goes_with_place(owner, name, value)
        ):
            self._layout.tracked.append(key)
        is_dict = issubclass(type(owner), dict | NoneType | MappingProxyType)
        target = name in self._source.targets
        return Slot(key, owner, name, is_secret(path, value), target=target, is_asked=not is_dict)

    def _one_of(self, key: str, owner: Any, name: Any) -> str:
        """Which one it is of those that have one key, as what two functions close over that one
        line has made: by the order in which they were found."""
        if owner is None:
            return key
        known = self._by_key.setdefault(key, [])
        if (one := (id(owner), name)) not in known:
            known.append(one)
        number = known.index(one)
        return f"{key} ({number + 1})" if number else key

    def _goes_with_hook(self, owner: object, value: object) -> bool:
        """Whether it is in the state of a communication hook, and all of it is sent with that."""
        if id(owner) not in self._by_hooks and id(value) not in self._by_hooks:
            return False
        return id(value) not in self._partly_by_hooks and not stays(value)

    def _goes_with_state(self, value: object) -> bool:
        """Whether it is a container that is tracked: its entries are in its state. Of all else that
        is tracked which one it is says all."""
        return issubclass(type(value), CONTAINERS) and any(value is one for _, one in self._tracked)

    def _goes_with_place(self, owner: object, name: object, value: object) -> bool:
        """Whether a sampler of a loop under way counts in it: a pass begins with what it was."""
        counts = id(owner) in self._in_samplers and isinstance(value, NUMBERS)
        return counts and name not in self._source.by_others | self._source.noted

    def outside(self, slot: Slot) -> None:
        if self.slots_left:
            self.slots_left -= 1
            self._layout.outside.append(slot)

    def _attribute(
        self,
        path: str,
        owner: Any,
        name: str,
        value: object,
        *,
        stored: bool,
        of: Any = None,
        there: bool = False,
    ) -> None:
        """stored: after the set-up, and read later. of: the class whose dict the owner is. there:
        as in `Slot`"""
        is_brief = name in self._source.attributes and not stored
        if not is_brief or self.counting.is_moving(value):
            handed = is_handed(self._source, name)
            self.variable(
                path, owner, name, value, stored=stored, by_others=handed, of=of, there=there
            )
        elif not there:
            self._note_brief(path, owner, name, value, of)

    def _note_brief(self, path: str, owner: Any, name: str, value: object, of: Any = None) -> None:
        """Of what seems to be written before it is read: see `brief`."""
        if len(self._layout.brief) >= BRIEF_MAX or not brief.may_be(value):
            return
        slot = self.slot(path, owner, name, value)
        frozen = slot.is_asked and "__setattr__" in {*vars(type(owner))}
        if not (slot.secret or frozen or self.counting.is_clock(f".{name}", value)):
            slot.of = of
            self._layout.brief.append(slot)

    def variable(
        self,
        path: str,
        owner: Any,
        name: str,
        value: object,
        *,
        stored: bool,
        by_others: bool,
        of: Any = None,
        there: bool = False,
    ) -> None:
        """What may be another later: by a store, or in place. That counts if others may do it, for
        all that the source says, or have done it; else, and where a copy for each step would take
        long, it is watched.

        stored, of, there  as in `_attribute`
        """
        stored, in_place = stored or self.counting.is_moving(value), changes_in_place(value)
        if not (stored or in_place or type(value) in PLAIN):
            return
        slot = self.slot(path, owner, name, value)
        slot.of, slot.there = of, there
        if not stored and in_place and by_others and not is_large(value):
            self._in_place.add(slot.key)
        if stored or slot.key in self._in_place:
            if slot.is_asked or self.counting.is_variable(value):
                self.outside(slot)
        elif len(self._layout.watched) < WATCHED_MAX:
            self._layout.watched.append(slot)

    def seen_before(self, value: object) -> bool:
        if id(value) in self._seen:
            return True
        self._seen.add(id(value))
        self._held.append(value)
        return False


def _is_small(value: Any) -> bool:
    """Of a container or memory."""
    if isinstance(value, Tensor | numpy.ndarray):
        return value.nbytes <= SMALL * value.itemsize
    return hasattr(value, "__len__") and len(value) <= SMALL


def _is_state(kind: type) -> bool:
    """Whether it is of a library, and may keep anything. Where loaders stand is known."""
    return is_closed(kind) and not module_of(kind).startswith(_PARTS)
