# SPDX-License-Identifier: Apache-2.0
"""Where a search begins: with the frames of the script's own files, its modules, what it tracks,
and what its loaders are made of. From there it goes into what may hold something of the script's
(`inside`). It runs none of the script's code.
"""

import ast
import asyncio
import dataclasses
import functools
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from operator import itemgetter
from types import (
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from trainmover.loops.place import collector_in
from trainmover.loops.rewrite import is_of_loops
from trainmover.state.kinds.values import Attributes
from trainmover.state.script.code.grammar import is_special
from trainmover.state.script.code.scopes import MODULE, Scope, Source
from trainmover.state.script.code.source import scope_of, source_of
from trainmover.state.script.code.syntax import walk
from trainmover.state.script.place.by_text import readers_of_globals
from trainmover.state.script.place.liveness import Live, live_at
from trainmover.state.script.place.managers import (
    Above,
    Around,
    frames_above,
    is_followed,
    stored_by_begin,
)
from trainmover.state.script.place.operands import read_before
from trainmover.state.script.place.stacked import Reader
from trainmover.state.script.place.summed import summed
from trainmover.state.script.place.swallowing import UNKNOWN, Makers, quiet_in
from trainmover.state.script.place.withs import around, made_by
from trainmover.state.script.search.contents import (
    CONTAINERS,
    OF_OPTIMIZERS,
    entries_of,
    flattened,
    is_looked_at,
)
from trainmover.state.script.search.counting import FUNCTIONS, NESTED_MAX, SMALL, Counting
from trainmover.state.script.search.in_state import InState
from trainmover.state.script.search.inside import Inside
from trainmover.state.script.search.layout import (
    AGAIN,
    BEFORE,
    HOOKS,
    LAYERS,
    WITH,
    Layout,
    Slot,
    Stacked,
    at_of,
    going,
    now_in,
    short,
)
from trainmover.state.script.search.singles import called_by_process, running_loop, singles
from trainmover.state.script.things.held import all_held_by, goes_on_later, locals_of
from trainmover.state.script.things.layers import Hooked, Layers
from trainmover.state.script.things.libraries import OwnTypes
from trainmover.state.script.things.readers import Results
from trainmover.state.script.things.things import First, Places, Things
from trainmover.state.script.things.untracked import Untracked
from trainmover.state.script.things.views import Views
from trainmover.state.script.values import entry_of
from trainmover.torch_internals.modules import global_hooks

_OURS = __name__.partition(".")[0]


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
        samplers: Iterable[object],
        first: First,
        places: Places,
        in_place: set[str],
    ) -> None:
        """carried: names of attributes that go with a tracked module or optimizer, by the dict that
        holds them. loaders: what gives the batches of the loops under way is made of. first: see
        `Things`. samplers, in_place: see `Inside`"""
        self._source = source
        self._is_own_file = is_own_file
        self._modules = modules
        self._tracked = list(tracked)
        self._carried = carried
        self._loaders = list(loaders)
        self._locals_of: list[Any] = []
        self._read_in: dict[int, Set[str]] = {}  # Of modules whose own frame is captured.
        self._kept = _kept_of_modules(self._tracked)
        self._under_way = Counter[CodeType]()  # How many frames have been looked at of each.
        self._fetches_in_step = False
        self._found = self._short = 0  # Variables that the tracked objects until now have.
        is_own, views = OwnTypes(is_own_file), Views(self._tracked)
        untracked = Untracked(self._tracked, views)
        looked_at = functools.partial(is_looked_at, source)
        things = Things(untracked, is_own, looked_at, first, places)
        self._layout = Layout(things, views)
        self._inside = Inside(
            self._layout,
            source,
            is_own_file,
            is_own,
            self._tracked,
            self._loaders,
            samplers,
            in_place,
        )
        self._inside.know(modules)

    def layout(self, frames: list[FrameType], locals_of: list[Any], fed: set[FrameType]) -> Layout:
        """fed: of the frames those that get the batches themselves, or what a generator makes of
        them."""
        for frame, values in zip(frames, locals_of, strict=True):
            self._leave_out(scope_of(frame.f_code), values)
        turns: dict[int, list[tuple[str, object]]] = {}
        for name, obj in self._tracked:
            turns.setdefault(id(_whose(obj)), []).append((name, obj))
        self._inside.apart = set(turns)
        for of_one in turns.values():
            self._in_turn(of_one)
        outside = self._layout.outside
        self._layout.carried = [one for one in outside if one.name in self._carried(one.owner)]
        self._layout.tracked += going(self._layout.carried)
        self._inside.begin_anew()  # However large the model is.
        self._inside.at = ("", "hooks", 0)
        for hooks in global_hooks().values():
            for hook in list(hooks.values()):
                self._inside.go_into(hook, "a hook of all modules", 0)
        if self._source.hooks:
            kinds = (nn.Module, Optimizer)
            hooked = Hooked(one for _, one in self._tracked if issubclass(type(one), kinds))  # type: ignore[misc]
            self._inside.outside(self._inside.slot(HOOKS, {"hooks": hooked}, "hooks", None))
        self._inside.at = ("", "loader", 0)
        for number, part in enumerate(self._loaders):
            self._inside.go_into(part, f"batches[{number}]", 0)
        lives = self._live_in(frames, locals_of)
        self._fetches_in_step = any(map(_is_called_by_us, frames[1:], frames))
        for number, (frame, values) in enumerate(zip(frames, locals_of, strict=True)):
            live = lives[number]
            if any(one.by_text for one in lives[number + 1 :]) and values is frame.f_globals:
                live = dataclasses.replace(live, names=live.names | values.keys())
            fetches = frame is frames[-1]
            self._frame(frame, values, live, fetches=fetches, feeds=frame in fed)
        self._locals_of = locals_of
        self._foreign()
        self._singles()
        for module in self._modules:
            path = module.__file__ or ""
            self._inside.at = self._inside.at_of(path, module.__name__, MODULE[0])
            self._module(module)
        self._inside.go_into_last()
        self._results()
        return self._layout

    def _in_turn(self, tracked: list[tuple[str, object]]) -> None:
        """What is tracked of one object, found whichever way others lead to it."""
        name, obj = tracked[0]
        self._inside.at = ("", "tracked", 0)
        self._inside.apart.discard(id(_whose(obj)))
        self._inside.go_into(obj, name, 0)
        self._inside.go_into_last()
        newest, short = self._layout.outside[self._found :], self._layout.brief[self._short :]
        for name, obj in tracked:
            self._go_along(obj, newest, short)
            if self._source.exchanges and issubclass(type(obj), nn.Module):
                layers = {"layers": Layers(obj)}  # type: ignore[arg-type]
                self._inside.outside(self._inside.slot(f"{LAYERS}{name}", layers, "layers", None))
        self._found, self._short = len(self._layout.outside), len(self._layout.brief)

    def _results(self) -> None:
        """Of functions with a cache that rely on more than what they are given."""
        counted = "cache_info" in self._source.loaded
        for at, path, function in self._inside.caches:
            if counted or self._inside.counting.relies_on_more(function):
                self._inside.at = at
                results = {"results": Results(function, counted=counted)}
                self._inside.outside(self._inside.slot(f"{path}()", results, "results", None))

    def _go_along(self, obj: object, newest: list[Slot], short: list[Slot]) -> None:
        """What was found in a tracked object goes with it, if it is in its state, by name or by
        value; attributes of modules and optimizers are carried beside it.

        short: of what was found, that which seems to be written before it is read
        """
        known = self._layout.tracked
        if issubclass(type(obj), nn.Module | Optimizer):
            known += self._added(obj, [*newest, *short])
            return
        if not hasattr(type(obj), "state_dict"):  # A generator: it has no other attributes.
            known += [slot.key for slot in newest]
            return
        whole = obj.state_dict()  # type: ignore[attr-defined]
        found = self._in_state(whole, newest, _whose(obj))
        taken = [slot for slot in newest if slot.key in found]
        known += [*found, *self._in_state(whole, short, _whose(obj), taken)]

    def _added(self, obj: object, slots: list[Slot]) -> list[str]:
        """Keys of what an optimizer with a state_dict() of its own has there by name, beside what
        all optimizers have."""
        if not slots or not isinstance(obj, Optimizer):
            return []
        if type(obj).state_dict is Optimizer.state_dict:
            return []
        state = dict(flattened(obj.state_dict(), 0))
        added = {name: self._entry(state[name]) for name in state.keys() - OF_OPTIMIZERS}
        return [one.key for one in slots if added.get(one.name) == self._entry(now_in(one))]

    def _in_state(
        self, whole: Any, slots: list[Slot], owner: object, taken: Iterable[Slot] = ()
    ) -> list[str]:
        """Keys of what lies in a state_dict(): by name and value; or by value, if there is nothing
        else that has it. A part of the state stands for one attribute, and an attribute may have
        many.

        taken: for what parts of it stand already
        """
        state = InState(whole, owner, self._entry)
        left = Counter(self._entry(one) for one in (whole, *(one for _, one in state.entries)))
        told = [slot for slot in slots if not self._inside.counting.holds(now_in(slot), _is_code)]
        named = state.named(told)
        left.subtract(self._entry(now_in(slot)) for slot in slots if slot.key in named)
        left.subtract(entry for slot in taken for entry in self._parts(now_in(slot), left))
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
        if whole in state or type(value) not in CONTAINERS:
            return [whole]
        return [self._entry(one) for one in entries_of(value)]

    def _entry(self, value: object) -> str:
        return repr(entry_of(value, things=self._layout.things))

    # --- where they are ---------------------------------------------------------------------------

    def _leave_out(self, scope: Scope, values: Mapping[str, Any]) -> None:
        """Objects that hold nothing but the time, by whatever way they are reached."""
        for name in scope.apart:
            value = _lies_at(name, values)
            if self._inside.is_own(type(value)) and not self._inside.is_fed(name, value, scope):
                self._inside.seen_before(value)

    def _is_left_out(self, name: str, scope: Scope, values: Mapping[str, Any]) -> bool:
        """Names of Python's own; what is tracked as a value; and what tells the time."""
        if is_of_loops(name):
            return True
        if name[0] in "_." and (name[0] == "." or (is_special(name) and name not in scope.lines)):
            return True
        if (id(values), name) in self._kept:
            return True
        return self._inside.counting.tells_time(name, scope, values.get(name))

    def _live_in(self, frames: list[FrameType], locals_of: list[Any]) -> list[Live]:
        """Of each frame. What no frame above catches, of the script's or of a library's that lies
        between, ends it."""
        found: list[Live] = []
        is_last, outer = True, None
        for frame, values in zip(frames, locals_of, strict=True):
            is_last = is_last and not any(map(_keeps_errors, _between(frame, outer)))
            quiet = quiet_in(frame.f_code, values, frame.f_globals)
            live = live_at(frame.f_code, frame.f_lasti, quiet, is_last=is_last)
            found.append(live)
            is_last, outer = is_last and not live.catches, frame
        return found

    def _frame(
        self,
        frame: FrameType,
        values: Mapping[str, Any],
        live: Live,
        *,
        fetches: bool,
        feeds: bool,
    ) -> None:
        """fetches: no other frame of the script's lies between it and the fetch. A loop over a
        generator of the script's shows how far that is in the generator's own frame.

        feeds: whatever it calls gets the batches themselves, or what a generator makes of them
        """
        code, slots = frame.f_code, list[Slot]()
        scope, number = scope_of(code), len(self._layout.frames)
        is_seen = live.collects and collector_in(frame) is not None
        collects = (live.collects and not is_seen) or (live.calls and feeds)
        self._inside.at = self._at_of(code)
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
        sums = self._summed(frame, values, live, fetches=fetches) & live.in_rounds
        targets = (live.targets if fetches else live.targets - live.own_targets) - scope.given
        for name in sorted(names | targets | at_end):
            value = values.get(name)
            if self._is_left_out(name, scope, values):
                if self._inside.is_fed(name, value, scope):
                    self._root(number, name, value)
                continue
            slot = self._inside.slot(name, held, name, value)
            slot.there = name in scope.there
            slot.target |= name in live.targets
            slots.append(slot)
            if name not in names and name in targets:
                slot.count = name not in scope.counts
                continue
            slot.at_end = name not in names
            if name in sums and not (slot.target or slot.there):
                self._layout.summed.add(slot.key)
            self._root(number, name, value)
        for name, value in list(values.items()):
            if name not in scope.clocks and type(value) in (FunctionType, MethodType, type):
                self._inside.go_into(value, name, 0)
        self._layout.frames.append(slots)
        kept = {kept for holder, kept in self._kept if holder == id(values)}
        alive = names | targets | at_end | shared | scope.clocks | kept
        below = _named_below(code) if code.co_name == "<module>" else frozenset[str]()
        self._layout.dead.append(live.stored - alive - below)
        self._managers(frame, values, number)
        for read in read_before(code.co_filename, live.call):
            if not self._tells(read, scope):
                slot = self._inside.slot(f"{BEFORE}{ast.unparse(read)}", None, "", None)
                self._layout.reads.append((number, slot.key, read))
        at = [short(code.co_filename), code.co_name, frame.f_lineno, collects]
        self._layout.place.append(at)

    def _summed(
        self, frame: FrameType, values: Mapping[str, Any], live: Live, *, fetches: bool
    ) -> Set[str]:
        """See `place.summed`. None where steps draw batches themselves, or where lines run at other
        times than between a step and the next fetch, as a generator's do."""
        code = frame.f_code
        if self._fetches_in_step or goes_on_later(code):
            return frozenset()
        elsewhere = self._source.globals | self._source.by_others
        if code.co_name == "<module>":
            if self._source.dynamic or readers_of_globals(code.co_filename):
                return frozenset()
        else:
            elsewhere = elsewhere.union(code.co_cellvars, code.co_freevars)
        return summed(frame, values, live.own_targets if fetches else frozenset(), elsewhere)

    def _at_of(self, code: CodeType) -> tuple[str, str, int]:
        """A function that calls itself has several frames, each with variables of its own."""
        self._under_way[code] += 1
        many, (file, function, first) = self._under_way[code], at_of(code)
        return file, f"{function}{AGAIN}{many})" if many > 1 else function, first

    def _root(self, number: int, name: str, value: object) -> None:
        """Go into what a local holds, and know that it is to hold it still."""
        if self._inside.may_hold(value):
            if self._inside.anchors(value):
                self._layout.roots.append((number, name, value))
            self._inside.go_into(value, name, 0)

    def _managers(self, frame: FrameType, values: Mapping[str, Any], number: int) -> None:
        """Of the `with`s around the fetch, but for those of which it is known that they are none of
        the script's own."""
        code, inside, paths = frame.f_code, self._inside, set[str]()
        key = (code.co_name, code.co_firstlineno)
        makers = Makers(code.co_filename, key, values, frame.f_globals)
        left_out = functools.partial(_left_out, inside.counting)
        for one in around(code, frame.f_lasti):
            node = made_by(code.co_filename, one.made_at)
            known = [UNKNOWN] if node is None else [each for each, _ in makers.managers(node)]
            is_own = any(is_followed(each, inside.is_own, self._is_own_file) for each in known)
            if not is_own and not any(each is UNKNOWN for each in known):
                continue
            path = f"{WITH}{ast.unparse(node) if node else 'a manager'}"
            while path in paths:
                path += ", in it"
            paths.add(path)
            state = Around(one.level, is_own, inside.is_own, self._is_own_file, left_out)
            self._manager(frame, number, path, state, node.lineno if node else 0)
        for many, above in enumerate(frames_above(frame)):
            for one in around(above.f_code, above.f_lasti):
                state = Around(one.level, False, inside.is_own, self._is_own_file, left_out)
                path = f"{WITH}what decorates it ({many + 1})"
                self._manager(frame, number, path, Above(many, state), 0)

    def _manager(self, frame: FrameType, number: int, path: str, state: Reader, line: int) -> None:
        key = self._inside.slot(path, None, "", None).key
        if self._shows_tracked(state(frame), 0):
            self._layout.tracked.append(key)
        line = line or frame.f_code.co_firstlineno
        self._layout.managers.append(Stacked(key, number, state, line))

    def _shows_tracked(self, value: Any, depth: int) -> bool:
        """Whether tensors of tracked state are in it."""
        if issubclass(type(value), Tensor):
            return self._layout.views.shown_by(value) is not None
        if isinstance(value, GeneratorType) and value.gi_frame is not None:
            value = locals_of(value.gi_frame)
        if depth > NESTED_MAX or type(value) not in (list, tuple, dict):
            return False
        return any(self._shows_tracked(one, depth + 1) for one in entries_of(value)[:SMALL])

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
            if self._is_left_out(name, scope, values):
                if self._inside.is_fed(name, value, scope):
                    self._inside.hold(values, name, value, name, 0)
                continue
            if type(value) is ModuleType and value not in self._modules:
                self._inside.hung_on(value, vars(value), name)
                continue
            is_read = known is None or name in known or name in self._source.by_others
            if not is_read:  # It is written before.
                continue
            if not self._is_local(values, name):
                read = source is not None and name in source.read
                self._inside.variable(
                    name,
                    values,
                    name,
                    value,
                    stored=name in changed,
                    by_others=read,
                    there=name in scope.there,
                )
            self._inside.hold(values, name, value, name, 0)

    def _foreign(self) -> None:
        """What the script puts into modules of others: a function of its own in a library's."""
        self._inside.at = ("", "imported", 0)
        for dotted in sorted(self._source.foreign):
            path, _, name = dotted.rpartition(".")
            owner = _found(path)
            if isinstance(owner, ModuleType | type) and owner not in self._modules:
                slot = self._inside.slot(dotted, vars(owner), name, vars(owner).get(name))
                slot.of = owner if isinstance(owner, type) else None
                self._inside.outside(slot)
        for dotted in sorted(self._source.patches):
            path, _, name = dotted.rpartition(".")
            owner = _found(path)
            if isinstance(owner, ModuleType | type) and owner not in self._modules:
                self._inside.go_into(vars(owner).get(name), dotted, 1)

    def _singles(self) -> None:
        """What the script hangs on objects that calls alone give: threads, processes, loggers."""
        self._inside.at = ("", "this process", 0)
        for path, one in singles(self._source.by_others):
            self._inside.hung_on(one, vars(one), path)
        for path, one in called_by_process():
            if self._is_scripts(one):
                self._inside.go_into(one, path, 0)
        if (loop := running_loop()) is not None:
            task = asyncio.current_task(loop)
            code = None if task is None else getattr(task.get_coro(), "cr_code", None)
            self._inside.at = self._inside.at if code is None else at_of(code)
            slot = self._inside.slot("tasks of the running loop", {"loop": loop}, "loop", loop)
            self._inside.outside(slot)

    def _is_scripts(self, one: object) -> bool:
        """A function of the script's, or an object of a class of its own, or a method of such."""
        function = one.__func__ if isinstance(one, MethodType) else one
        if isinstance(function, FunctionType):
            return self._is_own_file(function.__code__.co_filename)
        return self._inside.is_own(type(one))

    def _is_local(self, values: Mapping[str, Any], name: str) -> bool:
        """Whether a frame of the module itself is among those captured, and has it."""
        return any(
            values is known and any(slot.name == name for slot in slots)
            for known, slots in zip(self._locals_of, self._layout.frames, strict=True)
        )


@functools.lru_cache(maxsize=64)
def _named_below(code: CodeType) -> frozenset[str]:
    """All names in the functions and classes of a file."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return frozenset().union(*({*one.co_names} | _named_below(one) for one in inner))


def _between(frame: FrameType, outer: FrameType | None) -> Iterator[FrameType]:
    """Frames of libraries, but for ours, that lie between two of the script's; none above the
    outermost."""
    if outer is not None:
        yield from (one for one in _up_to(frame, outer) if not _is_ours(one))


def _is_called_by_us(frame: FrameType, outer: FrameType) -> bool:
    """As a step is, or what we draw from."""
    return any(map(_is_ours, _up_to(frame, outer)))


def _up_to(frame: FrameType, outer: FrameType) -> Iterator[FrameType]:
    above = frame.f_back
    while above is not None and above is not outer:
        yield above
        above = above.f_back


def _is_ours(frame: FrameType) -> bool:
    return bool(frame.f_globals.get("__name__", "").partition(".")[0] == _OURS)


def _keeps_errors(frame: FrameType) -> bool:
    """Whether an error that comes out of what a library has called may end in it."""
    quiet = quiet_in(frame.f_code, {}, frame.f_globals)
    return live_at(frame.f_code, frame.f_lasti, quiet, is_last=True).catches


def _found(dotted: str) -> object:
    """A module, or what is in one: a class; None if there is none."""
    path, inside = dotted, list[str]()
    while path and path not in sys.modules:
        path, _, name = path.rpartition(".")
        inside.insert(0, name)
    found: Any = sys.modules.get(path)
    for name in inside:
        found = vars(found).get(name) if isinstance(found, ModuleType | type) else None
    return found


def _lies_at(path: str, values: Mapping[str, Any]) -> object:
    """What a name stands for, or an entry by a constant: "meters['time']"; None: nothing."""
    node, keys = ast.parse(path, mode="eval").body, list[object]()
    while isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        keys.append(node.slice.value)
        node = node.value
    found: Any = values.get(node.id) if isinstance(node, ast.Name) else None
    for key in reversed(keys):
        found = dict.get(found, key) if isinstance(found, dict) else None
    return found


def _left_out(counting: Counting, manager: object, names: set[str]) -> set[str]:
    """Attributes that tell the time; and those that are written before they are read, but for what
    was stored as the `with` began: `__exit__` relies on that."""
    kind, held = type(manager), all_held_by(manager)
    clocks = {name for name in names if counting.is_clock(f".{name}", held.get(name), kind)}
    return clocks | (counting.temporary(kind, names) - stored_by_begin(kind))


def _whose(tracked: object) -> object:
    """The object of the script that this keeps, or is."""
    return tracked.owner if isinstance(tracked, Attributes) else tracked


def _is_code(kind: type) -> bool:
    """Which no state_dict() has, but its name: a schedule's functions."""
    return kind in FUNCTIONS


def _kept_of_modules(tracked: list[tuple[str, object]]) -> set[tuple[int, str]]:
    """Globals that go with the rank: the module's dict, by its id, and the name."""
    return {
        (id(vars(one.owner)), name)
        for _, one in tracked
        if isinstance(one, Attributes) and isinstance(one.owner, ModuleType)
        for name in one.names
    }
