# SPDX-License-Identifier: Apache-2.0
"""Data of a graph: nodes that refer to each other by number, and their bytes.

A reference is a tuple, one of three:

    ("", 3)                node 3 of this graph
    (0.25,)                a plain value
    ("torch", "relu")      an object that a library has under that name

A node is a tuple: the name of its kind (`kinds.KINDS`), then what that kind keeps of it.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy
import torch

from trainmover.graph.frames import Stand
from trainmover.graph.machine import Facts

Ref = tuple[Any, ...]
Node = tuple[Any, ...]
Path = tuple[Any, str] | None
"""Where an object was first met: the path to its owner, and the label in it."""


LEFT_OUT: Ref = ("left out",)
"""Stands for the gradient of a tensor whose content and gradient others carry."""


def node_ref(number: int) -> Ref:
    """Return the reference to a node."""
    return ("", number)


def node_number(ref: Any) -> int:
    """Return the number of the node that a reference is to; -1 if it is to none."""
    is_node = type(ref) is tuple and len(ref) == 2 and ref[0] == ""
    return ref[1] if is_node else -1


def is_left_out(node: Node) -> bool:
    """Tell whether a node is a block whose content somebody else carries."""
    return len(node) == 2 and node[0] == "block" and type(node[1]) is int


PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, bytes}
    | {torch.dtype, torch.device, torch.Size, numpy.bool_}
    | {getattr(numpy, f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
    | {numpy.float16, numpy.float32, numpy.float64, numpy.complex64, numpy.complex128}
)
"""Types whose instances are immutable values that `state.encode` has."""


def type_name(cls: type) -> str:
    """Return module and qualified name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


class Opaque(NamedTuple):
    """An object that cannot be carried: a process that takes the graph keeps its own.

    type  module and qualified name
    """

    path: str
    type: str


@dataclass
class Roots:
    """References from which everything in a graph is reached.

    modules   of the script: name in the module -> reference
    frames    from the script's first frame to the fetch: name of the variable -> reference
    active    objects that are at work there, such as running generators: they are matched first
    process   named extra roots: settings, random generators, arguments
    loose     functions and objects that only C refers to, by what made them
    """

    modules: dict[str, dict[str, Ref]] = field(default_factory=dict)
    frames: list[dict[str, Ref]] = field(default_factory=list)
    active: list[Ref] = field(default_factory=list)
    process: dict[str, Ref] = field(default_factory=dict)
    loose: dict[tuple[Any, ...], list[Ref]] = field(default_factory=dict)


@dataclass
class Graph:
    """State of a script at one fetch.

    place      where the script's frames stand
    nodes      by number
    addresses  integers that are the `id` of an object in the graph: value -> node
    facts      of the machine that captured it
    objects    by node, in the process that captured it: they keep their identity in a restore
    """

    place: list[Stand]
    roots: Roots
    nodes: list[Node]
    addresses: dict[int, int]
    opaque: list[Opaque]
    facts: Facts = field(default_factory=dict)
    objects: dict[int, Any] = field(default_factory=dict, compare=False)


def path_text(path: Path) -> str:
    """Return a path as people write it: `trainer.meters['loss'].total`."""
    labels = []
    while path is not None:
        path, label = path
        labels.append(label)
    return "".join(reversed(labels)).lstrip(".")
