# SPDX-License-Identifier: Apache-2.0
"""Restoring a graph in place: one operation for a retry, for a joiner and for a rollback.

A live object that lies at a node's path is filled and keeps its identity, so whoever refers to it
goes on referring to it; what is missing is made. In the process that captured the graph the very
objects are known, wherever they lie now. Each live object stands for one node: the first path to it
counts. What cannot be had stays as it is, and is noted.
"""

import gc
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any

from trainmover.errors import StateMismatch
from trainmover.graph import frames as stack
from trainmover.graph.blocks import BlockRestorer
from trainmover.graph.kinds import KINDS, iterators
from trainmover.graph.kinds.kind import HOLE, MISSING
from trainmover.graph.layout import CONTAINERS, slot_value, slots_of
from trainmover.graph.loose import loose_objects
from trainmover.graph.machine import facts, is_fact
from trainmover.graph.nodes import Graph, Ref, node_number
from trainmover.graph.script import CodeKey, Script, is_own_name

_PASSES_MAX = 3
_FRAMES_A_NODE = 12
"""Frames of Python that restoring one node takes at most, for chains of objects."""


class Restore:
    """One pass over a graph.

    again           another pass is needed: a generator was driven, or an address was not known yet
    is_of_this_run  the graph was captured in this process, and knows its objects
    """

    def __init__(
        self,
        graph: Graph,
        script: Script,
        before: "Restore | None" = None,
        *,
        carried: Set[int] = frozenset(),
        with_opaque: bool = True,
        with_left_out: bool = True,
    ) -> None:
        self.script, self.again = script, False
        self.is_of_this_run = bool(graph.objects)
        self._with_left_out = with_left_out
        self._with_opaque = with_opaque
        self.blocks = BlockRestorer(graph.nodes, graph.objects, carried)
        self.notes: list[str] = []
        self._nodes, self._addresses = graph.nodes, graph.addresses
        self._facts, self._my_facts = graph.facts, facts()
        self._objects: dict[int, Any] = {}
        self._owners: dict[int, int] = {}
        self._expected: dict[int, Any] = {}
        self._kept: list[Any] = []
        self._earlier = {} if before is None else before._objects
        self._own = graph.objects | self._earlier
        self._spares: dict[type, list[Any]] = {} if before is None else before._spares
        self._codes: dict[CodeKey, types.CodeType] | None = None
        self._classes: dict[tuple[str, str], type] | None = None

    # --- references

    def get(self, ref: Ref, live: Any = MISSING) -> Any:
        """Return the object that a reference stands for here.

        live  what lies in this process where the reference lay
        """
        if len(ref) == 1:
            return self._value(ref[0], live)
        module, name = ref
        return self._node(name, live) if module == "" else self._named(module, name, live)

    def _node(self, number: int, live: Any) -> Any:
        if number in self._objects:
            return self._met_again(self._objects[number], live)
        node = self._nodes[number]
        live = self._own.get(number, live)
        if live is MISSING and number in self._expected:
            live = self._expected[number]
        found = KINDS[node[0]].restore(number, live, self, node[1:])
        if found is HOLE and (node[0] != "opaque" or self._with_opaque):
            self.note(f"{node[0]} cannot be made: {str(node[1:4])[:100]}")
        return found

    def _met_again(self, found: Any, live: Any) -> Any:
        """Keep what is displaced: it may stand for a node whose object cannot be made."""
        is_displaced = live is not found and type(live) is type(found)
        if is_displaced and id(live) not in self._owners and type(live) not in CONTAINERS:
            self._spares.setdefault(type(live), []).append(live)
        return found

    def _value(self, value: Any, live: Any) -> Any:
        """Return a plain value; of an address or a fact of the machine the one of this process."""
        if type(value) is not int or value not in self._addresses:
            return live if is_fact(value, live, self._facts, self._my_facts) else value
        node = self._addresses[value]
        for known in (self._objects, self._earlier):
            if node in known:
                return id(known[node])
        self.again = True
        return value

    def _named(self, module: str, name: str, live: Any) -> Any:
        """Return an object of a library by its name. Nothing is imported for it."""
        if module == "<builtin>":
            return next((one for one in iterators.TYPES if one.__name__ == name), HOLE)
        found: Any = sys.modules.get(module, HOLE)
        if found is HOLE and isinstance(live, types.ModuleType) and live.__name__ == module:
            return live  # It is in no table, as the namespaces of torch's operators.
        for part in name.split(".") if name else ():
            found = getattr(found, part, HOLE)
        if found is not HOLE:
            return found
        if live is not MISSING and getattr(live, "__qualname__", None) == name:
            return live
        self.note(f"{module}.{name} does not exist here")
        return live if live is not MISSING else HOLE

    # --- which object stands for which node

    def take(self, ref: int, obj: Any) -> Any:
        """Have an object stand for a node from here on; returns it."""
        self._objects[ref] = obj
        self._owners[id(obj)] = ref
        self._kept.append(obj)
        return obj

    def is_free(self, live: Any, ref: int) -> bool:
        """Tell whether a live object may stand for this node: it stands for no other one."""
        return live is not MISSING and self._owners.get(id(live), ref) == ref

    def is_own(self, ref: int, live: Any) -> bool:
        """Tell whether a live object is the one that a node was captured from."""
        return live is not MISSING and self._own.get(ref, MISSING) is live

    def knows(self, number: int) -> bool:
        """Tell whether an object stands for a node already."""
        return number in self._objects

    def known(self, number: int, default: Any = None) -> Any:
        """Return the object that stands for a node already."""
        return self._objects.get(number, default)

    def expect(self, number: int, obj: Any) -> None:
        """Have a new object stand for a node as soon as that is restored."""
        if number not in self._objects:
            self._expected[number] = obj

    @contextmanager
    def by_path(self) -> Iterator[None]:
        """Return a context within which live objects count, not those that the graph was captured
        from."""
        own, self._own = self._own, {}
        try:
            yield
        finally:
            self._own = own

    def spare(self, cls: type, fits: Callable[[Any], bool] = lambda _: True) -> Any:
        """Return a live object of this type that was displaced by another one; or MISSING."""
        for one in self._spares.get(cls, ()):
            if id(one) not in self._owners and fits(one):
                return one
        return MISSING

    # --- what kinds need

    def cls(self, ref: Ref, live: Any) -> Any:
        """Return the class that a reference stands for."""
        return self.get(ref, MISSING if live is MISSING else type(live))

    def code(self, key: CodeKey) -> types.CodeType | None:
        """Return this process's code of a key."""
        if self._codes is None:
            self._codes = self.script.codes()
        return self._codes.get(key)

    def class_named(self, module: str, qualname: str) -> type | None:
        """Return this process's class of the script."""
        if self._classes is None:
            self._classes = self.script.classes()
        return self._classes.get((module, qualname))

    def names(self, held: dict[str, Any], wanted: Mapping[str, Ref]) -> None:
        """Give a dict of names these entries, in this order."""
        new = self._entries(held, wanted)
        if [*held] != [*new] or any(held[name] is not value for name, value in new.items()):
            held.clear()
            held.update(new)

    def _entries(self, held: Mapping[str, Any], wanted: Mapping[str, Ref]) -> dict[str, Any]:
        new = {}
        for name, ref in wanted.items():
            old = held.get(name, MISSING)
            value = self.get(ref, old)
            value = old if value is HOLE else value
            if value is not MISSING:
                new[name] = value
        return new

    def slots(self, obj: Any, wanted: Mapping[str, Ref]) -> None:
        """Give an object these slots; others are unset."""
        cls: Any = type(obj)
        for name, member in slots_of(cls):
            old = slot_value(obj, member, MISSING)
            if name in wanted:
                new = self.get(wanted[name], old)
                if new is not old and new is not HOLE:
                    member.__set__(obj, new)
            elif old is not MISSING:
                member.__delete__(obj)

    def attribute(self, obj: Any, name: str, ref: Ref) -> None:
        """Set one attribute of a function."""
        old = getattr(obj, name)
        new = self.get(ref, old)
        if new is not old and new is not HOLE:
            setattr(obj, name, new)

    def locals(self, frame: types.FrameType, wanted: Mapping[str, Ref]) -> None:
        """Give a frame these local variables."""
        held = stack.locals_of(frame)
        new = self._entries(held, wanted)
        if held.keys() != new.keys() or any(held[name] is not new[name] for name in new):
            stack.set_locals(frame, new)

    def globals(self, held: dict[str, Any], wanted: Mapping[str, Ref]) -> None:
        """Give a module these names, but for those of the import system."""
        mine = {name: value for name, value in held.items() if is_own_name(name)}
        new = self._entries(mine, wanted)
        for name in mine.keys() - new.keys():
            del held[name]
        for name, value in new.items():
            if held.get(name, MISSING) is not value:
                held[name] = value

    def note(self, text: str) -> None:
        """Note what could not be restored."""
        self.notes.append(text)

    # --- all of it

    def run(
        self,
        graph: Graph,
        frames: list[types.FrameType],
        process: Mapping[str, object],
        active: Sequence[object],
    ) -> None:
        """Restore everything that is reached from the roots.

        Frames hold the active objects, and the caller the process's: these very ones are filled.
        """
        roots = graph.roots
        at_work = [*stack.running_generators(frames), *active]
        bound = [*zip(roots.active, at_work, strict=False)]
        bound += [(ref, process[name]) for name, ref in roots.process.items() if name in process]
        self._own = self._own | {node_number(ref): one for ref, one in bound if one is not None}
        for ref in roots.active:
            self.get(ref)
        for name, wanted in roots.modules.items():
            if name in self.script.modules() or self.script.load(name):
                self.globals(self.script.modules()[name], wanted)
            else:
                self.note(f"module {name} is not loaded here")
        for frame, wanted in zip(frames, roots.frames, strict=True):
            if not stack.is_module_level(frame):
                self.locals(frame, wanted)
        self._loose(roots.loose)
        for name, ref in roots.process.items():
            if name in process and self.get(ref, process[name]) is not process[name]:
                self.note(f"{name} was exchanged")
        self.notes += [
            f"memory of {size:,} bytes is not as it was, and too large to be kept"
            for size in self.blocks.unlike
        ]
        if self._with_left_out:
            self.notes += [
                f"memory of {size:,} bytes is not here, and nobody has sent it"
                for size in self.blocks.missing
            ]

    def _loose(self, wanted: Mapping[tuple[Any, ...], list[Ref]]) -> None:
        mine = loose_objects(self.script, self._owners) if wanted else {}
        for key, refs in wanted.items():
            found = mine.get(key, [])
            if len(found) != len(refs):
                self.note(f"{len(refs)} of {key[-2:]} that only C refers to, here {len(found)}")
                continue
            for ref, live in zip(refs, found, strict=True):
                self.get(ref, live)


def restore(
    graph: Graph,
    frames: list[types.FrameType],
    script: Script,
    process: Mapping[str, object] | None = None,
    active: Sequence[object] = (),
    *,
    carried: Set[int] = frozenset(),
    with_opaque: bool = True,
    with_left_out: bool = True,
) -> list[str]:
    """Make this process's script hold what the graph says; returns what could not be restored.

    process, active  roots as they were captured, of this process
    carried          addresses of storages that somebody else fills
    with_opaque      False: opaque objects that are missing here are not noted
    with_left_out    False: nor is memory that somebody else carries
    Raises StateMismatch if the script stands at another place; then nothing was changed.
    """
    here = stack.place_of(frames)
    if here != graph.place:
        raise StateMismatch(
            f"The script stands at {_line(here)} and the state is of {_line(graph.place)}.",
            means="The state was not restored.",
            do="Run the script on until it stands there.",
        )
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 1000 + _FRAMES_A_NODE * len(graph.nodes)))
    collecting = gc.isenabled()
    gc.disable()
    try:
        one = None
        for _ in range(_PASSES_MAX):
            one = Restore(
                *(graph, script, one),
                carried=carried,
                with_opaque=with_opaque,
                with_left_out=with_left_out,
            )
            one.run(graph, frames, process or {}, active)
            if not one.again:
                break
    finally:
        sys.setrecursionlimit(limit)
        if collecting:
            gc.enable()
    return [] if one is None else one.notes


def _line(place: list[stack.Stand]) -> str:
    if not place:
        return "no place"
    last = place[-1]
    return f"{last.code.file}:{last.position[0]} in {last.code.function}"
