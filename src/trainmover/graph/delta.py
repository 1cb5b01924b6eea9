# SPDX-License-Identifier: Apache-2.0
"""Delta of a graph: what one look found to be other than at the look before, and its bytes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trainmover.graph.frames import Stand
from trainmover.graph.live import FREE
from trainmover.graph.nodes import Graph, Node, Opaque, Ref, Roots
from trainmover.graph.wire import (
    MALFORMED_GRAPH,
    as_place,
    as_values,
    check_node,
    protocol_error,
    references,
)
from trainmover.state.encode import decode, encode


@dataclass
class RootChanges:
    """Roots that changed, whole; the `Roots` of a graph beside it.

    modules          None as value: there is no such module any more
    frames           by position; a frame behind the last one of the place is gone
    active, process  None: unchanged
    """

    modules: dict[str, dict[str, Ref] | None] = field(default_factory=dict)
    frames: dict[int, dict[str, Ref]] = field(default_factory=dict)
    active: list[Ref] | None = None
    process: dict[str, Ref] | None = None

    def __bool__(self) -> bool:
        """Tell whether any root changed."""
        is_other = self.active is not None or self.process is not None
        return is_other or bool(self.modules or self.frames)


@dataclass
class Delta:
    """Changes of a graph from one look to the next.

    place      where the script's frames stand now
    nodes      bodies that are new, by number
    removed    numbers that no node has any more
    addresses  all of them, if any changed
    opaque     all of them, if any changed
    objects    of new nodes, in the process that looked
    """

    place: list[Stand]
    roots: RootChanges
    nodes: dict[int, Node]
    removed: list[int]
    addresses: dict[int, int] | None
    opaque: list[Opaque] | None
    objects: dict[int, Any] = field(default_factory=dict, compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed that a comparison sees."""
        return not (self.roots or self.nodes or self.removed)


def apply(graph: Graph, delta: Delta) -> Graph:
    """Return the graph that a capture at the delta's look would have given, but for numbering.

    The graph stays as it is. Raises ProtocolError for a delta that refers to nodes that neither
    has: it is not of this graph.
    """
    try:
        nodes = _nodes(graph.nodes, delta)
    except MALFORMED_GRAPH as error:
        raise protocol_error("changes of a script's state", error) from error
    objects = dict(graph.objects)
    for number in delta.removed:
        objects.pop(number, None)
    objects.update(delta.objects)
    return Graph(
        delta.place,
        _roots(graph.roots, delta),
        nodes,
        graph.addresses if delta.addresses is None else delta.addresses,
        graph.opaque if delta.opaque is None else delta.opaque,
        graph.facts,
        objects,
    )


def merge(first: Delta, second: Delta) -> Delta:
    """Return the delta of two looks, one after the other."""
    gone = {*second.removed}
    nodes = {number: one for number, one in first.nodes.items() if number not in gone}
    objects = {number: one for number, one in first.objects.items() if number not in gone}
    removed = {one for one in first.removed if one not in second.nodes} | gone
    return Delta(
        second.place,
        _merge_roots(first.roots, second.roots),
        nodes | second.nodes,
        sorted(removed),
        first.addresses if second.addresses is None else second.addresses,
        first.opaque if second.opaque is None else second.opaque,
        objects | second.objects,
    )


def _merge_roots(first: RootChanges, second: RootChanges) -> RootChanges:
    return RootChanges(
        first.modules | second.modules,
        first.frames | second.frames,
        first.active if second.active is None else second.active,
        first.process if second.process is None else second.process,
    )


def _nodes(known: list[Node], delta: Delta) -> list[Node]:
    count = len(known)
    new = {number for number in (*delta.nodes, *delta.removed) if number >= count}
    if new != {*range(count, count + len(new))}:
        raise ValueError("numbers of new nodes do not follow those of the graph")
    nodes = known + [FREE] * len(new)
    for number in delta.removed:
        nodes[number] = FREE
    for number, node in delta.nodes.items():
        nodes[number] = node
    for number in _referenced(delta):
        if number >= len(nodes):
            raise ValueError(f"there is no node {number}")
    return nodes


def _roots(roots: Roots, delta: Delta) -> Roots:
    changes = delta.roots
    modules: dict[str, Any] = roots.modules | changes.modules
    frames = dict(enumerate(roots.frames)) | changes.frames
    return Roots(
        {name: one for name, one in modules.items() if one is not None},
        [frames.get(position, {}) for position in range(len(delta.place))],
        roots.active if changes.active is None else changes.active,
        roots.process if changes.process is None else changes.process,
        roots.loose,
    )


Encoded = dict[int, tuple[Node, bytes]]
"""Bytes of nodes, by number, with the very node that they are of."""


def to_bytes(delta: Delta, encoded: Encoded | None = None) -> bytes:
    """Serialize a delta. Raises UserError for a value that has no encoding.

    encoded  nodes of earlier deltas, which are not encoded again; this one's are added
    """
    roots = delta.roots
    known: Encoded = {} if encoded is None else encoded
    for number, node in delta.nodes.items():
        if number not in known or known[number][0] is not node:
            known[number] = node, encode(node)
    return encode(
        (
            as_values(delta.place),
            (roots.modules, [*roots.frames.items()], roots.active, roots.process),
            [(number, known[number][1]) for number in sorted(delta.nodes)],
            delta.removed,
            None if delta.addresses is None else [*delta.addresses.items()],
            None if delta.opaque is None else [tuple(one) for one in delta.opaque],
        )
    )


def from_bytes(data: bytes) -> Delta:
    """Deserialize a delta. Raises ProtocolError for anything that `to_bytes` does not give."""
    try:
        place, (modules, frames, active, process), nodes, removed, addresses, opaque = decode(data)
        delta = Delta(
            as_place(place),
            RootChanges(modules, dict(frames), active, process),
            {number: decode(made) for number, made in nodes},
            removed,
            None if addresses is None else dict(addresses),
            None if opaque is None else [Opaque(*one) for one in opaque],
        )
        _check(delta)
    except MALFORMED_GRAPH as error:
        raise protocol_error("changes of a script's state", error) from error
    return delta


def _check(delta: Delta) -> None:
    """Refuse what no look finds, before it is applied."""
    for number, node in delta.nodes.items():
        check_node(number, node)
    roots = delta.roots
    expected: list[tuple[set[Any], Any]] = [
        *(({type(None), dict}, one) for one in roots.modules.values())
    ]
    expected += [({dict}, one) for one in roots.frames.values()]
    expected += [({type(None), list}, roots.active), ({type(None), dict}, roots.process)]
    expected += [({list}, delta.removed)]
    for kinds, one in expected:
        if type(one) not in kinds:
            raise ValueError(f"a {type(one).__name__} stands where roots or numbers stand")
    addresses = delta.addresses or {}
    for number in (*delta.nodes, *delta.removed, *roots.frames, *addresses, *_referenced(delta)):
        if type(number) is not int or number < 0:
            raise ValueError(f"{number} is no number of a node")


def _referenced(delta: Delta) -> Iterator[Any]:
    """Yield the number of each node that is referred to."""
    yield from references((vars(delta.roots), delta.nodes))
    yield from (delta.addresses or {}).values()
