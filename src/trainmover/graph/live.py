# SPDX-License-Identifier: Apache-2.0
"""Walk that is continued: nodes are read again, come and go, and keep their numbers.

References between nodes are counted. A node that nothing refers to any more is removed at once,
and its number is given to a later one. Cycles are found by `sweep`. A weak reference does not
count: a node that only weak references lead to is let go at the next look, and met again if its
object still lives.
"""

import bisect
from collections.abc import Iterable
from typing import Any

from torch import UntypedStorage

from trainmover.graph.blocks import (
    BlockReader,
    Span,
    body_of,
    span_of_array,
    span_of_storage,
)
from trainmover.graph.layout import CONTAINERS
from trainmover.graph.nodes import LEFT_OUT, PLAIN, Node, Opaque, Path, Ref
from trainmover.graph.script import Script
from trainmover.graph.walk import Walk
from trainmover.torch_internals.watching.aliases import storage_of

FREE: Node = ("tuple", None, [])
"""Body of a number that no node has now: a tuple without items, which nothing refers to."""
MAY_BE_DATA = frozenset({*CONTAINERS, tuple})
"""Types of containers that are taken for data where they have too many objects."""
AWAY_MAX = 1 << 20
"""Bytes to which a block on a device is copied: the script waits for what is queued there."""
_WEAK, _VIEWS = "weakref", frozenset({"tensor", "array"})


class LiveWalk(Walk):
    """Nodes from look to look.

    blocks     blocks of memory, by node
    counts     references to a node from nodes and roots
    before     bodies of the nodes that this look has touched, as they were
    entered    nodes that got an object in this look
    known_count  numbers there were before this look
    paths      where each object was first met
    weak       nodes that are weak references, and to which nodes
    known      integers that are the address of an object, with its node
    dropped    objects that are no longer held, as soon as this list is cleared
    """

    def __init__(
        self,
        script: Script,
        left_out: set[int],
        *,
        with_gradients: bool,
        copied_to: int | None,
        items_max: int | None,
    ) -> None:
        super().__init__(script)
        self._items_max = items_max
        self._left_out, self._with_gradients = left_out, with_gradients
        self.blocks = LiveBlocks(self, left_out, copied_to)
        self._blocks = self.blocks
        self.counts: dict[int, int] = {}
        self.before: dict[int, Node] = {}
        self.entered: set[int] = set()
        self.known_count = 0
        self.paths: dict[int, Path] = {}
        self.weak: dict[int, list[int]] = {}
        self.known: dict[int, int] = {}
        self.dropped: list[Any] = []
        self.has_other_addresses = self.has_other_notes = False
        self._touched: list[int] = []
        self._removed: set[int] = set()
        self._free: list[int] = []
        self._edges: dict[int, list[int]] = {}
        self._current = -1
        self._released: list[int] = []
        self._unreferenced: set[int] = set()
        self._notes: dict[int, list[Opaque]] = {}
        self._integers: dict[Any, list[int]] = {}
        self._holders: dict[int, int] = {}

    def is_data(self, obj: Any) -> bool:
        """Tell whether a container has more objects than are looked at."""
        if self._items_max is None or type(obj) not in MAY_BE_DATA or len(obj) <= self._items_max:
            return False
        values = obj.values() if isinstance(obj, dict) else obj
        return type(next(iter(values))) not in PLAIN

    # --- nodes

    def begin(self) -> None:
        """Begin a look: what is touched from now on is compared with what it was."""
        self.before.clear()
        self.known_count = len(self.nodes)
        self._touched.clear()
        self._removed.clear()
        self.entered.clear()
        self.edges.clear()
        self.has_other_addresses = self.has_other_notes = False

    def touch(self, number: int) -> None:
        """Note that a node may get another body."""
        if number not in self.before:
            self.before[number] = self.nodes[number]
        self._touched.append(number)

    def touched(self) -> list[int]:
        """Return the nodes that were touched since the last call, ascending."""
        found = sorted({*self._touched})
        self._touched.clear()
        return found

    def new_number(self, obj: Any) -> int:
        """Return a number for a new node, one that was given back if there is any."""
        if self._free:
            number = self._free.pop()
        else:
            number = len(self.nodes)
            self.nodes.append(FREE)
        self.touch(number)
        self.entered.add(number)
        self.counts[number] = 0
        self._unreferenced.add(number)
        self.objects[number] = obj
        return number

    def enter(self, obj: Any) -> int:
        """Return the number of a new node, which is read later."""
        if type(obj) is range:
            known = self._same_range(obj)
            if known is not None:
                return known
        number = self._numbers[id(obj)] = self.new_number(obj)
        if id(obj) in self._holders:
            self.known[id(obj)] = number
            self.has_other_addresses = True
        return number

    def _same_range(self, obj: range) -> int | None:
        """Return the node for a range that an iterator makes anew each time it is asked."""
        for number in self._edges.get(self._current, ()):
            old = self.objects[number]
            if type(old) is range and old == obj and self.stand_in(number, obj):
                return number
        return None

    def read(self, number: int, obj: Any, path: Path) -> None:
        """Read the body of an object's node, and count what it refers to."""
        self.touch(number)
        self._current = number
        self.paths[number] = path
        above = self.edges, self.integers, self.opaque
        edges: list[int] = []
        self.edges, self.integers, self.opaque = edges, [], []
        super().read(number, obj, path)
        kind = self.nodes[number][0]
        if kind == _WEAK:
            self.weak[number] = edges
            edges = []
        elif kind == "array":
            self.blocks.note_array(edges)
        if self._edges.get(number) != edges:
            self._set_edges(number, edges)
        if self.integers or number in self._integers:
            self.hold_integers(number, self.integers)
        if self.opaque or number in self._notes:
            self._set_notes(number, self.opaque)
        self.edges, self.integers, self.opaque = above
        self._current = -1

    def gradient(self, tensor: Any, path: Path) -> Ref | None:
        """Return the reference to a tensor's gradient; LEFT_OUT if others carry it."""
        if not self._with_gradients and storage_of(tensor) in self._left_out:
            return LEFT_OUT
        return super().gradient(tensor, path)

    def read_again(self, numbers: Iterable[int]) -> None:
        """Read these nodes again, as far as they are still there, and all that is new below."""
        for number in numbers:
            if number in self.paths:
                self.read(number, self.objects[number], self.paths[number])
        self.finish()

    def read_weak(self, suspects: Iterable[int]) -> None:
        """Read weak references again: suspects, and those to nodes that this look has removed."""
        removed = self._removed
        found = {one for one in suspects if one in self.weak}
        found |= {one for one, nodes in self.weak.items() if not removed.isdisjoint(nodes)}
        self.read_again(sorted(found))

    def stand_in(self, number: int, obj: Any) -> bool:
        """Have a new object stand for a node that one root alone refers to; tell whether it may."""
        if self.counts.get(number) != 1 or id(obj) in self._numbers:
            return False
        self._forget_object(number, self.objects[number])
        self.objects[number] = obj
        self.entered.add(number)
        self._numbers[id(obj)] = number
        return True

    def views_of(self, blocks: set[int]) -> set[int]:
        """Return the tensors and arrays over these blocks."""
        edges = self._edges.items()
        return {number for number, nodes in edges if not blocks.isdisjoint(nodes)}

    # --- references

    def referred(self, number: int) -> list[int]:
        """Return the nodes that a node refers to, each time."""
        return self._edges.get(number, [])

    def refer(self, number: int) -> None:
        """Count a reference."""
        self.counts[number] += 1
        self._unreferenced.discard(number)

    def release(self, number: int) -> None:
        """Take a reference back; it counts until `collect`."""
        self._released.append(number)

    def _set_edges(self, number: int, edges: list[int]) -> None:
        old = self._edges.get(number)
        self._edges[number] = edges
        for one in edges:
            self.refer(one)
        self._released += old or ()

    def collect(self) -> None:
        """Remove the nodes that nothing refers to any more."""
        while self._released:
            released, self._released = self._released, []
            for number in released:
                if number in self.counts:
                    self.counts[number] -= 1
            for number in sorted({*released}):
                if self.counts.get(number) == 0:
                    self._remove(number)

    def let_go(self) -> None:
        """Remove the nodes that only weak references lead to."""
        for number in sorted(self._unreferenced):
            if self.counts.get(number) == 0:
                self._remove(number)
        self._unreferenced.clear()
        self.collect()

    def reached_from(self, objects: Iterable[Any]) -> set[int]:
        """Return the nodes that these objects lead to."""
        known = (self._numbers.get(id(one)) for one in objects)
        return self._reached(one for one in known if one is not None)

    def _reached(self, numbers: Iterable[int]) -> set[int]:
        reached: set[int] = set()
        pending = [*numbers]
        while pending:
            number = pending.pop()
            if number not in reached:
                reached.add(number)
                pending += self._edges.get(number, ())
        return reached

    def sweep(self, roots: Iterable[int]) -> None:
        """Remove the nodes that cannot be reached from these."""
        reached = self._reached([*roots, *self._unreferenced])
        for number in sorted(self.counts.keys() - reached):
            self._remove(number)
        self.collect()

    def _remove(self, number: int) -> None:
        self.touch(number)
        obj = self.objects.pop(number)
        if self.nodes[number][0] == "block":
            self.blocks.forget(number)
        else:
            self._forget_object(number, obj)
        del self.counts[number]
        self.nodes[number] = FREE
        self._free.append(number)
        self._released += self._edges.pop(number, ())
        if number in self._integers:
            self.hold_integers(number, [])
        if number in self._notes:
            self._set_notes(number, [])
        self.paths.pop(number, None)
        self.weak.pop(number, None)
        self._removed.add(number)
        self._unreferenced.discard(number)
        self.dropped.append(obj)

    def _forget_object(self, number: int, obj: Any) -> None:
        if self._numbers.get(id(obj)) == number:
            del self._numbers[id(obj)]
            if self.known.pop(id(obj), None) is not None:
                self.has_other_addresses = True

    # --- what goes with nodes

    def notes(self) -> list[Opaque]:
        """Return what cannot be carried, by node."""
        return [one for number in sorted(self._notes) for one in self._notes[number]]

    def _set_notes(self, number: int, notes: list[Opaque]) -> None:
        if notes != self._notes.get(number, []):
            self.has_other_notes = True
            self._notes.pop(number, None)
            if notes:
                self._notes[number] = notes

    def hold_integers(self, holder: Any, integers: list[int]) -> None:
        """Note the large integers that a node, or a group of roots, has now."""
        old = self._integers.get(holder, [])
        if integers == old:
            return
        self._integers.pop(holder, None)
        if integers:
            self._integers[holder] = integers
        for one in integers:
            self._holders[one] = self._holders.get(one, 0) + 1
            if one in self._numbers and one not in self.known:
                self.known[one] = self._numbers[one]
                self.has_other_addresses = True
        for one in old:
            self._holders[one] -= 1
            if not self._holders[one]:
                del self._holders[one]
                self.has_other_addresses |= self.known.pop(one, None) is not None


class LiveBlocks(BlockReader):
    """Blocks that come and go with their views.

    left_out   addresses of storages of which only the size is kept
    copied_to  bytes to which a block is copied, on a device at most AWAY_MAX; of a larger one only
               the size is kept. None: all are copied, or known by their digest
    of_arrays  blocks that an array is or was a view of
    """

    def __init__(self, walk: LiveWalk, left_out: set[int], copied_to: int | None) -> None:
        super().__init__(walk.nodes, walk.objects)
        self.spans: dict[int, Span] = {}
        self.left_out, self._copied_to = left_out, copied_to
        self.of_arrays: set[int] = set()
        self._walk = walk

    def enter(self, span: Span) -> int:
        """Return the number of a new node for a range."""
        number = self._walk.new_number(span.owner)
        self.spans[number] = span
        self._nodes[number] = self._body(span)
        return number

    def read_again(self, numbers: Iterable[int]) -> None:
        """Copy the content of these blocks again, as far as they are still there."""
        for number in numbers:
            if number in self.spans:
                self._walk.touch(number)
                self._nodes[number] = self._body(self.spans[number])

    def note_array(self, blocks: list[int]) -> None:
        """Note that an array is a view of these blocks: what writes to it leaves no mark."""
        for number in blocks:
            if number not in self.of_arrays:
                self.of_arrays.add(number)
                self._walk.touch(number)

    def among(self, numbers: Iterable[int]) -> set[int]:
        """Return the blocks among these nodes, and those of which some of them are views."""
        found = {number for number in numbers if number in self.spans}
        for number in numbers:
            if self._nodes[number][0] in _VIEWS:
                found.update(one for one in self._walk.referred(number) if one in self.spans)
        return found

    def update(self, contents: dict[int, bytes]) -> None:
        """Give blocks the content that was read."""
        nodes = self._nodes
        for number, content in contents.items():
            nodes[number] = ("block", content)

    def forget_moved(self, numbers: Iterable[int]) -> None:
        """Find no longer by address those of these blocks whose owner has other memory now.

        Their views are read again in the same look.
        """
        for number in numbers:
            if number in self.spans and _moved(self.spans[number]):
                self.forget(number)

    def forget(self, number: int) -> None:
        """Find a block no longer by its address."""
        self.of_arrays.discard(number)
        span = self.spans.pop(number, None)
        if span is None:
            return
        start = span.start
        if start in self._blocks and self._blocks[start][0] == number:
            del self._blocks[start]
            del self._starts[bisect.bisect_left(self._starts, start)]

    def _body(self, span: Span) -> Node:
        if span.start in self.left_out or self.stays(span):
            return "block", span.size
        return body_of(span)

    def stays(self, span: Span) -> bool:
        """Tell whether a block is too large to be copied at a look."""
        limit = self._copied_to
        return limit is not None and span.size > (limit if span.device == "cpu" else AWAY_MAX)


def _moved(span: Span) -> bool:
    is_storage = isinstance(span.owner, UntypedStorage)
    now = span_of_storage(span.owner) if is_storage else span_of_array(span.owner)
    return (now.start, now.size) != (span.start, span.size)
