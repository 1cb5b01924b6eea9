# SPDX-License-Identifier: Apache-2.0
"""Bytes of a graph: `state.encode` makes them, and a reader builds the types of its table only."""

import platform
from collections.abc import Iterator
from typing import Any

import torch

from trainmover.errors import ProtocolError
from trainmover.graph.frames import Stand
from trainmover.graph.kinds import KINDS
from trainmover.graph.nodes import Graph, Opaque, Roots
from trainmover.graph.script import CodeKey
from trainmover.protocol.malformed import MALFORMED
from trainmover.state.encode import decode, encode
from trainmover.version import VERSION

MALFORMED_GRAPH = (*MALFORMED, TypeError, ValueError, LookupError, AttributeError)
"""Errors that reading bytes of another shape raises."""
MADE_BY = (
    f"trainmover {VERSION}",
    f"Python {platform.python_version()}",
    f"torch {torch.__version__}",
)
"""Versions that decide how objects are laid out."""


def to_bytes(graph: Graph) -> bytes:
    """Serialize a graph. Raises UserError for a value that has no encoding."""
    roots = graph.roots
    return encode(
        (
            MADE_BY,
            as_values(graph.place),
            (roots.modules, roots.frames, roots.active, roots.process, [*roots.loose.items()]),
            graph.nodes,
            [*graph.addresses.items()],
            [tuple(one) for one in graph.opaque],
            graph.facts,
        )
    )


def from_bytes(data: bytes) -> Graph:
    """Deserialize a graph. Raises ProtocolError for anything that `to_bytes` does not give."""
    try:
        made_by, *rest = decode(data)
        if tuple(made_by) != MADE_BY:
            raise ValueError(f"they were made by {' '.join(made_by)}, this is {' '.join(MADE_BY)}")
        place, roots, nodes, addresses, opaque, facts = rest
        modules, frames, active, process, loose = roots
        graph = Graph(
            as_place(place),
            Roots(modules, frames, active, process, dict(loose)),
            nodes,
            dict(addresses),
            [Opaque(*one) for one in opaque],
            dict(facts),
        )
        _check(graph)
    except MALFORMED_GRAPH as error:
        raise protocol_error("a script's state", error) from error
    return graph


def as_values(place: list[Stand]) -> list[Any]:
    """Return a place as plain values."""
    return [(tuple(one.code), one.position) for one in place]


def as_place(values: Any) -> list[Stand]:
    """Return the place of such values."""
    return [Stand(CodeKey(*code), tuple(position)) for code, position in values]


def protocol_error(what: str, error: BaseException) -> ProtocolError:
    """Return the error for bytes that should hold something and do not."""
    return ProtocolError(
        f"Bytes that should hold {what} do not: {error}",
        means="No rank can be restored from them; nothing in this process was changed.",
        do="All processes of a job must run the same versions of trainmover, Python and torch.",
    )


def check_node(number: int, node: Any) -> None:
    """Raise ValueError for a node that no walk makes."""
    if type(node) is not tuple or not node or node[0] not in (*KINDS, "block"):
        raise ValueError(f"node {number} is of no kind")
    if node[0] == "block" and not _is_content(node[1:]):
        raise ValueError(f"block {number} has no content and no size")


def _is_content(body: tuple[Any, ...]) -> bool:
    if len(body) == 1 and type(body[0]) is bytes:
        return True
    return len(body) in (1, 2) and all(type(one) is int and one >= 0 for one in body)


def _check(graph: Graph) -> None:
    """Refuse nodes that no walk makes, before anything is restored from them."""
    for number, node in enumerate(graph.nodes):
        check_node(number, node)
    for value in (vars(graph.roots), graph.nodes):
        for number in references(value):
            if type(number) is not int or not 0 <= number < len(graph.nodes):
                raise ValueError(f"there is no node {number}")


def references(value: Any) -> Iterator[Any]:
    """Yield the number of each node that is referred to in a value."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending += one.values()
        elif isinstance(one, list | tuple):
            if len(one) == 2 and one[0] == "" and isinstance(one, tuple):
                yield one[1]
            else:
                pending += one
