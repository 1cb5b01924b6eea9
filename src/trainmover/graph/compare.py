# SPDX-License-Identifier: Apache-2.0
"""Comparison of two graphs: the same values at the same paths, and the same sharing."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy

from trainmover.asked import same_value
from trainmover.graph.kinds.memory import seen_bytes, view_in, without_view
from trainmover.graph.machine import is_fact
from trainmover.graph.nodes import (
    LEFT_OUT,
    PLAIN,
    Graph,
    Node,
    Path,
    is_left_out,
    node_number,
    path_text,
)

_TEXT_MAX = 60
_Place = tuple[int, int]


_OF_NUMBERS = ("block", "torch-generator", "python-random", "numpy-")


class Difference(NamedTuple):
    """A place where two graphs differ. first, second: what each one has, in words

    kind  of the node that differs
    """

    path: str
    first: str
    second: str
    kind: str

    @property
    def is_of_numbers(self) -> bool:
        """Tell whether memory of tensors or arrays differs, or a random generator."""
        return self.kind.startswith(_OF_NUMBERS)


def differences(first: Graph, second: Graph, *, with_opaque: bool = True) -> Iterator[Difference]:
    """Yield where two graphs of one script differ, nearest to the roots first.

    with_opaque  False: an object that cannot be carried equals anything, and none at all

    Facts of the two machines are equal, each to the other's. Memory that somebody else carries is
    not compared. Objects that only C refers to are left out: batches that are under way come and go
    there.
    """
    yield from _Comparison(first, second, with_opaque=with_opaque).run()


class _Comparison:
    """Nodes are matched by path: one of the first graph with one of the second, and no other."""

    def __init__(self, first: Graph, second: Graph, *, with_opaque: bool) -> None:
        self._first, self._second = first, second
        self._with_opaque = with_opaque
        self._matched: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._places: tuple[dict[_Place, _Place], dict[_Place, _Place]] = ({}, {})
        self._pending: list[tuple[Any, Any, Path, str]] = []
        self._addresses: list[tuple[int, int, Path, str]] = []
        self._sets: list[tuple[list[Any], list[Any], Path]] = []

    def run(self) -> Iterator[Difference]:
        """Yield all differences."""
        for name in ("process", "modules", "frames", "active"):
            mine, other = getattr(self._first.roots, name), getattr(self._second.roots, name)
            label = "" if name == "modules" else f"<{name}>"
            self._pending.append((mine, other, (None, label), ""))
        while self._pending:
            for mine, other, path, kind in self._breadth_first():
                if found := self._compare(mine, other, path, kind):
                    yield Difference(path_text(path), *found, kind)
            sets, self._sets = self._sets, []
            for mine, other, path in sets:
                if found := self._compare_entries(mine, other, path):
                    yield Difference(path_text(path), *found, "set")
        for mine, other, path, kind in self._addresses:
            if not self._are_addresses_of_one(mine, other):
                yield Difference(path_text(path), _said(mine), _said(other), kind)

    def _breadth_first(self) -> Iterator[tuple[Any, Any, Path, str]]:
        while self._pending:
            now, self._pending = self._pending, []
            yield from now

    def _compare(self, mine: Any, other: Any, path: Path, kind: str) -> tuple[str, str] | None:
        """Return what two parts are if they differ; note the parts within for later."""
        numbers = node_number(mine), node_number(other)
        if numbers != (-1, -1):
            return self._compare_nodes(*numbers, mine, other, path)
        if type(mine) is not type(other):
            return _said(mine), _said(other)
        if isinstance(mine, dict):
            return self._compare_names(mine, other, path, kind)
        if isinstance(mine, list | tuple):
            if len(mine) != len(other):
                return f"{len(mine)} items", f"{len(other)} items"
            for number, (a, b) in enumerate(zip(mine, other, strict=True)):
                if not _is_same(a, b):
                    label = _label(number, a) if isinstance(mine, list) else ""
                    self._pending.append((a, b, (path, label), kind))
            return None
        if _is_equal(mine, other):
            return None
        if self._are_addresses(mine, other):  # Whose objects may not be matched yet.
            self._addresses.append((mine, other, path, kind))
            return None
        if is_fact(mine, other, self._first.facts, self._second.facts):
            return None
        return _said(mine), _said(other)

    def _are_addresses(self, mine: Any, other: Any) -> bool:
        """Tell whether two values are the `id` of objects, each in its graph."""
        is_mine = type(mine) is int and mine in self._first.addresses
        return is_mine and other in self._second.addresses

    def _are_addresses_of_one(self, mine: int, other: int) -> bool:
        """Tell whether two integers are the `id` of matched objects."""
        nodes = self._first.addresses.get(mine, -1), self._second.addresses.get(other, -2)
        return self._matched.get(nodes[0]) == nodes[1]

    def _compare_names(
        self, mine: dict[Any, Any], other: dict[Any, Any], path: Path, kind: str
    ) -> tuple[str, str] | None:
        for name, one in mine.items():
            if name in other and not _is_same(one, other[name]):
                self._pending.append((one, other[name], (path, f".{name}"), kind))
        if mine.keys() == other.keys():
            return None
        only = (
            self._only_in(mine, other, self._first),
            self._only_in(other, mine, self._second),
        )
        if not any(only):
            return None
        return f"has {sorted(map(str, only[0]))}", f"has {sorted(map(str, only[1]))}"

    def _only_in(self, mine: dict[Any, Any], other: dict[Any, Any], graph: Graph) -> set[Any]:
        """Return the names that one has alone, but for a gradient that somebody else carries."""
        names = mine.keys() - other.keys()
        return {n for n in names if mine[n] != LEFT_OUT and not self._is_anything(mine[n], graph)}

    def _is_anything(self, ref: Any, graph: Graph) -> bool:
        """Tell whether a reference is to an opaque object, which is not compared."""
        number = node_number(ref)
        return not self._with_opaque and number >= 0 and graph.nodes[number][0] == "opaque"

    def _compare_nodes(
        self, first: int, second: int, mine: Any, other: Any, path: Path
    ) -> tuple[str, str] | None:
        if self._is_anything(mine, self._first) or self._is_anything(other, self._second):
            return None
        if -1 in (first, second):
            return self._name(self._first, mine), self._name(self._second, other)
        if self._matched.get(first, second) != second or self._taken.get(second, first) != first:
            return "an object that is shared", "another object"
        if first not in self._matched:
            self._matched[first], self._taken[second] = second, first
            nodes = self._first.nodes[first], self._second.nodes[second]
            seen = seen_bytes(nodes[0], self._first.nodes), seen_bytes(nodes[1], self._second.nodes)
            if None not in seen:
                self._pending.append((*seen, path, "block"))
            places = _place(nodes[0], self._first), _place(nodes[1], self._second)
            if places[0] and places[1]:
                nodes = without_view(nodes[0]), without_view(nodes[1])
                if not self._is_one_place(places[0], places[1]):
                    return "memory that is shared", "other memory"
            entries = _entries(nodes[0]), _entries(nodes[1])
            if entries[0] and entries[1]:
                self._sets.append((entries[0], entries[1], path))
                return None
            are_copied = all(map(_is_copied, nodes))
            if not are_copied and not any(map(is_left_out, nodes)):
                self._pending.append((*nodes, path, nodes[0][0]))
        return None

    def _compare_entries(
        self, mine: list[Any], other: list[Any], path: Path
    ) -> tuple[str, str] | None:
        """Compare the entries of two sets, whose order is chance: they are known by other paths;
        those that only the sets lead to are taken in order."""
        known = [one for one in mine if node_number(one) in self._matched]
        theirs = [one for one in other if node_number(one) in self._taken]
        if {self._matched[node_number(one)] for one in known} != {*map(node_number, theirs)}:
            return "other entries", "entries of its own"
        mine = [one for one in mine if node_number(one) not in self._matched]
        other = [one for one in other if node_number(one) not in self._taken]
        if len(mine) != len(other):
            return f"{len(mine)} more entries", f"{len(other)} more entries"
        pairs = zip(mine, other, strict=True)
        self._pending += [(a, b, (path, "{}"), "set") for a, b in pairs]
        return None

    def _is_one_place(self, mine: _Place, other: _Place) -> bool:
        to_other, to_mine = self._places
        return to_other.setdefault(mine, other) == other and to_mine.setdefault(other, mine) == mine

    @staticmethod
    def _name(graph: Graph, ref: Any) -> str:
        number = node_number(ref)
        return _said(ref) if number < 0 else f"a node of kind {graph.nodes[number][0]}"


def _place(node: Node, graph: Graph) -> _Place | None:
    """Return where in memory that somebody else carries a tensor or an array begins; else None.

    Whether views of such memory share a block is not compared: only whether they begin at one
    place.
    """
    view = view_in(node)
    return view if view is not None and is_left_out(graph.nodes[view[0]]) else None


def _entries(node: Node) -> list[Any]:
    """Return the references of a set that holds an object, whose order follows from addresses."""
    entries: list[Any] = []
    if node[0] == "frozenset":
        entries = node[1]
    elif node[:2] == ("object", "set"):
        entries = node[2]
    return entries if any(node_number(one) >= 0 for one in entries) else []


def _is_copied(node: Node) -> bool:
    """Tell whether a node is a block with its content: its views show what of it can be seen."""
    return node[0] == "block" and isinstance(node[1], bytes)


def _label(number: int, one: Any) -> str:
    """Return the label of an item; of a pair in a dict the key, if that is a plain value."""
    is_pair = isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], tuple)
    return f"[{one[0][0]!r}]" if is_pair and len(one[0]) == 1 else f"[{number}]"


def _is_same(mine: Any, other: Any) -> bool:
    """Tell whether two references or values lead to no node, and are the same: most are."""
    if type(mine) is tuple:
        leads_on = len(mine) > 1 and not (len(mine) == 2 and mine[0] and type(mine[1]) is str)
        return not leads_on and same_value(mine, other)
    return type(mine) in PLAIN and same_value(mine, other)


def _is_equal(mine: Any, other: Any) -> bool:
    """Tell whether two plain values are the same bits: nan equals nan, 0.0 is not -0.0."""
    if isinstance(mine, numpy.ndarray):
        return bool(mine.dtype == other.dtype and mine.tobytes() == other.tobytes())
    if mine == other and not (isinstance(mine, float | complex) and mine == 0.0):
        return True
    return repr(mine) == repr(other)


def _said(value: Any) -> str:
    if isinstance(value, bytes) and len(value) > _TEXT_MAX:
        return f"{len(value)} bytes"
    text = repr(value[0] if isinstance(value, tuple) and len(value) == 1 else value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
