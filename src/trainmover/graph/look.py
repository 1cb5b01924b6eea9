# SPDX-License-Identifier: Apache-2.0
"""Looks at a graph from fetch to fetch: only what may have changed is read again.

A step changes few of thousands of nodes. The extension compares all of them in one call with what
they were (`checks`): pointers of containers, attributes and slots, memory of tensors, arrays and
random generators. What it reports is read again by its kind, and so is what it cannot see. Without
the extension every node is read again each time; both find the same changes.

Objects of nodes are held until the look after the script has let go of them. Cycles that the script
has let go of are found every few hundred looks. Objects that only C refers to are those of the last
capture, and a library's object that was met by its name keeps that name. A node that changed is
read and sent whole, so a long list that grows costs its length. Memory of a device is copied again
where torch has counted a write to it.
"""

import inspect
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from trainmover.asked import NodeTable, are, is_in_c, same_value
from trainmover.graph import frames as stack
from trainmover.graph.checks import IMMUTABLE, Check, check_of, check_of_block
from trainmover.graph.delta import Delta, RootChanges
from trainmover.graph.live import FREE, LiveWalk
from trainmover.graph.loose import loose_objects
from trainmover.graph.machine import facts
from trainmover.graph.nodes import Graph, Ref, Roots, node_number, path_text
from trainmover.graph.script import Script, is_own_name, loops_last
from trainmover.graph.walk import ADDRESS_MIN

_PLACES_MAX = 4
"""Places at which the script stood that are known again: a fetch, and where a step is called."""
SWEEP_EVERY = 256
"""Looks from one search for cycles to the next."""
_IS_NATIVE = is_in_c("NodeTable")
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Flags of code whose frames are those of generators or coroutines."""
_Key = tuple[str, Any]
_NOTHING = object()
_ACTIVE, _PROCESS = ("active", ""), ("process", "")


class _Group:
    """Roots that lie in one dict: values and references by name, as they were."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.values: list[Any] = []
        self.refs: dict[str, Ref] = {}

    def is_same(self, names: list[str], values: list[Any]) -> bool:
        """Tell whether these are the names and the very objects."""
        return are(values, self.values) and names == self.names


class Look:
    """Changes of a script's graph from fetch to fetch.

    left_out        addresses of storages whose content others carry: their blocks have a size only
    with_gradients  False: others carry the gradients of tensors in these storages, too
    trusted_from    bytes from which memory that only tensors are views of is taken for unchanged as
                    long as torch counts no write to them; on a device any. A write past torch
                    (`.data`, another library) is not seen then. None: all memory is compared
    copied_to       bytes to which a block of memory is copied, on a device at most AWAY_MAX; larger
                    ones have a size only. None: all are copied, or known by their digest
    items_max       objects that a container may have; one with more is taken for data, which each
                    process has itself. None: any number
    is_native       False: every node is read again at each look
    """

    def __init__(
        self,
        script: Script,
        left_out: Iterable[int] = (),
        *,
        with_gradients: bool = True,
        trusted_from: int | None = None,
        copied_to: int | None = None,
        items_max: int | None = None,
        is_native: bool = _IS_NATIVE,
    ) -> None:
        self._script = script
        self._left_out = {*left_out}
        self._with_gradients = with_gradients
        self._trusted_from, self._copied_to = trusted_from, copied_to
        self._items_max = items_max
        self._is_whole = False
        self._is_native = is_native
        self._reset()

    def _reset(self) -> None:
        self._walk = LiveWalk(
            self._script,
            self._left_out,
            with_gradients=self._with_gradients,
            copied_to=self._copied_to,
            items_max=self._items_max,
        )
        self._table = NodeTable()
        self._module_table = NodeTable()
        self._modules: dict[str, dict[str, Any]] = {}
        self._module_names: list[str] = []
        self._unchecked: set[int] = set()
        self._groups: dict[_Key, _Group] = {}
        self._changed_groups: set[_Key] = set()
        self._loose: dict[tuple[Any, ...], list[Ref]] = {}
        self._generators: dict[types.FrameType, object] = {}
        self._place: list[stack.Stand] = []
        self._places: list[tuple[list[tuple[types.CodeType, int]], list[stack.Stand]]] = []
        self._count = self._depth = 0

    # --- what is asked of it

    def leave_out(self, storages: Iterable[int]) -> None:
        """Leave out the storages at these addresses, and no others, from the next look on."""
        new = storages if isinstance(storages, Set) else {*storages}
        if new == self._left_out:
            return
        spans = self._walk.blocks.spans.items()
        other = {number for number, span in spans if span.start in new ^ self._left_out}
        self._unchecked |= other | self._walk.views_of(other)
        self._left_out.clear()
        self._left_out.update(new)

    def capture(
        self,
        frames: list[types.FrameType],
        process: Mapping[str, object] | None = None,
        active: Sequence[object] = (),
        *,
        with_loose: bool = False,
    ) -> Graph:
        """Return the whole graph, which deltas then continue; see `walk.capture`."""
        self._reset()
        self._is_whole = False
        walk = self._walk
        self._read_roots(frames, process or {}, active)
        walk.finish()
        if with_loose:
            self._read_loose()
        self._finish_look(())
        self._is_whole = True
        return self.graph()

    def graph(self) -> Graph:
        """Return the whole graph as of the last look."""
        walk = self._walk
        return Graph(
            self._place,
            self._roots(),
            [*walk.nodes],
            dict(walk.known),
            walk.notes(),
            facts(),
            dict(walk.objects),
        )

    def delta(
        self,
        frames: list[types.FrameType],
        process: Mapping[str, object] | None = None,
        active: Sequence[object] = (),
    ) -> Delta:
        """Return what changed since the last look.

        Raises RuntimeError without a capture, and behind a look that has raised.
        """
        if not self._is_whole:
            raise RuntimeError("there is no whole graph to continue: capture it first")
        self._is_whole = False
        walk = self._walk
        walk.begin()
        self._changed_groups.clear()
        seen, contents = self._table.changed() if self._is_native else ([], {})
        suspects = sorted({*seen, *self._unchecked})
        walk.blocks.update(contents)
        blocks = sorted(walk.blocks.among(suspects))
        walk.let_go()
        walk.blocks.forget_moved(blocks)
        self._read_roots(frames, process or {}, active)
        walk.read_again(one for one in suspects if one not in walk.weak)
        walk.collect()
        self._sweep()
        walk.blocks.read_again(blocks)
        self._finish_look(suspects)
        self._is_whole = True
        return self._difference(contents)

    # --- what is where

    def names(self) -> dict[str, dict[str, Ref]]:
        """Return the references of each module's names: another dict as soon as one changes."""
        return {key[1]: one.refs for key, one in self._groups.items() if key[0] == "modules"}

    def reached_from(self, objects: Iterable[Any]) -> set[int]:
        """Return the nodes that these objects lead to."""
        return self._walk.reached_from(objects)

    def too_large(self, numbers: Iterable[int]) -> Iterator[tuple[int, Any]]:
        """Give those of these nodes that are tensors over memory too large to be copied."""
        walk, blocks = self._walk, self._walk.blocks
        for number in numbers:
            if self._copied_to is None or walk.nodes[number][0] != "tensor":
                continue
            spans = (blocks.spans.get(one) for one in walk.referred(number))
            if any(one and blocks.stays(one) and one.start not in self._left_out for one in spans):
                yield number, walk.objects[number]

    def path_of(self, number: int) -> str:
        """Return where the object of a node was first met."""
        return path_text(self._walk.paths.get(number))

    # --- roots

    def _read_roots(
        self, frames: list[types.FrameType], process: Mapping[str, object], active: Sequence[object]
    ) -> None:
        at_work = [*self._running_generators(frames), *active]
        self._read_group(_ACTIVE, {str(n): one for n, one in enumerate(at_work)}, None)
        self._stand_in(process)
        self._read_group(_PROCESS, process, None)
        self._read_modules()
        for position, frame in enumerate(frames):
            owner = (None, f"{frame.f_code.co_qualname}()")
            self._read_group(("frames", position), loops_last(stack.locals_of(frame)), owner)
        for position in range(len(frames), self._depth):
            self._remove_group(("frames", position))
        self._depth = len(frames)
        self._update_place(frames)

    def _read_group(self, key: _Key, values: Mapping[str, Any], owner: Any) -> None:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
            self._changed_groups.add(key)
        names, objects = [*values], [*values.values()]
        if group.is_same(names, objects):
            return
        old = group.refs
        known = dict(zip(group.names, group.values, strict=True))
        other = [name for name, one in values.items() if known.get(name, _NOTHING) is not one]
        new = self._walk.refs(
            [values[name] for name in other],
            owner,
            lambda n: f".{other[n]}" if owner else f"<{other[n]}>",
        )
        group.refs = old | dict(zip(other, new, strict=True))
        if names != group.names:
            other += known.keys() - values.keys()
            group.refs = {name: group.refs[name] for name in names}
        group.names, group.values = names, objects
        self._count_group(key, new, [old[name] for name in other if name in old], objects)
        if not same_value(old, group.refs):
            self._changed_groups.add(key)

    def _count_group(self, key: _Key, new: list[Ref], old: list[Ref], values: list[Any]) -> None:
        """Count the references that a group has gained and lost. values: those it has now"""
        walk = self._walk
        for ref in new:
            if ref[0] == "" and len(ref) == 2:
                walk.refer(ref[1])
        for ref in old:
            if ref[0] == "" and len(ref) == 2:
                walk.release(ref[1])
        walk.hold_integers(key, [one for one in values if type(one) is int and one > ADDRESS_MIN])

    def _remove_group(self, key: _Key) -> None:
        group = self._groups.pop(key)
        self._count_group(key, [], [*group.refs.values()], [])
        self._changed_groups.add(key)

    def _stand_in(self, process: Mapping[str, object]) -> None:
        """Have roots that are dicts, made anew each time, go on with their nodes."""
        group = self._groups.get(_PROCESS)
        if group is None or are([*process.values()], group.values):
            return
        for n, name in enumerate(group.names):
            value, number = process.get(name), node_number(group.refs[name])
            if value is group.values[n] or type(value) is not dict:
                continue
            if type(group.values[n]) is dict and self._walk.stand_in(number, value):
                group.values[n] = value
                self._walk.read(number, value, self._walk.paths[number])

    def _read_modules(self) -> None:
        modules = self._script.modules()
        if modules is not self._modules:
            self._note_modules(modules)
            changed: Iterable[int] = range(len(modules))
        else:
            changed = self._module_table.changed()[0] if self._is_native else range(len(modules))
        for position in changed:
            module = self._module_names[position]
            names = self._modules[module]
            self._read_group(
                ("modules", module),
                loops_last({name: one for name, one in names.items() if is_own_name(name)}),
                (None, module),
            )
            if self._is_native:
                Check(parts=1).put_into(self._module_table, position, names)

    def _note_modules(self, modules: dict[str, dict[str, Any]]) -> None:
        for module in self._modules.keys() - modules.keys():
            self._remove_group(("modules", module))
        self._modules, self._module_names = modules, [*modules]
        self._walk.forget_classes()
        self._module_table = NodeTable()

    def _read_loose(self) -> None:
        walk = self._walk
        for key, found in loose_objects(self._script, walk.visited()).items():
            values = {f"{n}": one for n, one in enumerate(found)}
            self._read_group(("loose", key), values, None)
            self._loose[key] = [*self._groups["loose", key].refs.values()]
        walk.finish()

    def _running_generators(self, frames: list[types.FrameType]) -> list[object]:
        """Return the generators whose frames these are; those of the last look are known."""
        at_work = [one for one in frames if one.f_code.co_flags & _GENERATORS]
        known = self._generators
        if [*known] != at_work:
            self._generators = dict(zip(at_work, stack.running_generators(at_work), strict=True))
        return [*self._generators.values()]

    def _update_place(self, frames: list[types.FrameType]) -> None:
        now = [(one.f_code, one.f_lasti) for one in frames]
        self._place = next((place for known, place in self._places if known == now), [])
        if len(self._place) != len(now):
            self._place = stack.place_of(frames)
            self._places = [(now, self._place), *self._places[: _PLACES_MAX - 1]]

    # --- nodes

    def _finish_look(self, suspects: Iterable[int]) -> None:
        """Let go of what was removed; only then weak references show what lives without us."""
        walk = self._walk
        self._update_checks()
        walk.dropped.clear()
        walk.read_weak(suspects)
        self._update_checks()
        walk.edges.clear()
        walk.integers.clear()

    def _update_checks(self) -> None:
        """Note the nodes that were read as they are now."""
        walk, unchecked = self._walk, self._unchecked
        for number in walk.touched():
            unchecked.discard(number)
            if number not in walk.counts:
                if self._is_native:
                    self._table.remove(number)
            elif not self._is_native:
                unchecked.add(number)
            else:
                self._check(number)

    def _check(self, number: int) -> None:
        node, obj = self._walk.nodes[number], self._walk.objects[number]
        if node[0] in IMMUTABLE or (node[0] == "block" and type(node[1]) is int):
            self._table.remove(number)
            if node[0] == "block" and len(node) == 3:  # A large one, known by its digest.
                self._unchecked.add(number)
            return
        check: Check | None = None
        if node[0] != "block":
            version = node[0] == "tensor" and any(
                map(self._is_trusted, self._walk.referred(number))
            )
            check = check_of(node, obj, version=version)
        elif number in self._walk.blocks.spans:
            span, trusted = self._walk.blocks.spans[number], self._is_trusted(number)
            check = check_of_block(span, node[1], trusted=trusted)
        if check is None or not check.put_into(self._table, number, obj):
            self._table.remove(number)
            self._unchecked.add(number)

    def _is_trusted(self, number: int) -> bool:
        """Tell whether torch's counters tell writes to a block; see `trusted_from`."""
        blocks = self._walk.blocks
        if self._trusted_from is None or number not in blocks.spans or number in blocks.of_arrays:
            return False
        span = blocks.spans[number]
        is_large = span.device != "cpu" or span.size >= self._trusted_from
        return is_large and span.start not in self._left_out

    def _sweep(self) -> None:
        self._count += 1
        if self._count % SWEEP_EVERY == 0:
            groups = self._groups.values()
            refs = [node_number(ref) for group in groups for ref in group.refs.values()]
            self._walk.sweep(one for one in refs if one >= 0)

    # --- results

    def _difference(self, contents: dict[int, bytes]) -> Delta:
        """Return the delta. contents: of blocks that are new for sure, if they are still there."""
        walk = self._walk
        nodes = {number: walk.nodes[number] for number in contents if number in walk.counts}
        removed = []
        for number in sorted(walk.before.keys() - nodes.keys()):
            before, now = walk.before[number], walk.nodes[number]
            if now is FREE:
                if before is not FREE or number >= walk.known_count:
                    removed.append(number)
            elif before is FREE or not same_value(before, now):
                nodes[number] = now
        return Delta(
            self._place,
            self._root_changes(),
            nodes,
            removed,
            dict(walk.known) if walk.has_other_addresses else None,
            walk.notes() if walk.has_other_notes else None,
            {number: walk.objects[number] for number in walk.entered & walk.counts.keys()},
        )

    def _root_changes(self) -> RootChanges:
        changes = RootChanges()
        for key in sorted(self._changed_groups):
            group = self._groups.get(key)
            match key:
                case "modules", module:
                    changes.modules[module] = None if group is None else group.refs
                case "frames", position if group is not None:
                    changes.frames[position] = group.refs
                case "process", _ if group is not None:
                    changes.process = group.refs
                case "active", _ if group is not None:
                    changes.active = [*group.refs.values()]
                case _:
                    pass
        return changes

    def _roots(self) -> Roots:
        groups = self._groups
        return Roots(
            {key[1]: group.refs for key, group in groups.items() if key[0] == "modules"},
            [groups["frames", position].refs for position in range(self._depth)],
            [*groups[_ACTIVE].refs.values()],
            groups[_PROCESS].refs,
            self._loose,
        )
