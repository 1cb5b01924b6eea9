# SPDX-License-Identifier: Apache-2.0
"""What functions and methods read, by their names alone: whose method `self.meter.average()` calls,
or of which property it asks, nobody knows from its text, so it is any of that name.
"""

import ast
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from trainmover.state.script.code.syntax import Function, walk

OTHERS = sys.stdlib_module_names | {"torch", "numpy"}
"""Packages in which nothing of a script's lies."""


@dataclass
class Reads:
    """Of all functions of one name in a script.

    attributes  that they read, of any object
    names       of what is around them that they read
    """

    attributes: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    def add(self, other: "Reads") -> None:
        self.attributes |= other.attributes
        self.names |= other.names


ReadBy = dict[str, Reads]


def read_by(functions: Iterable[Function], imports: Mapping[str, str]) -> ReadBy:
    """By name, with what is defined in each. Not what it takes out of modules of Python's, torch's
    or numpy's, as `math.cos`.

    imports: names of modules in the file, with what they stand for in full

    >>> found = read_by(ast.parse("def mean(self): return self.total / MANY").body, {})
    >>> found["mean"]
    Reads(attributes={'total'}, names={'MANY'})
    """
    found: ReadBy = {}
    for one in functions:
        nodes = [inner for statement in one.body for inner in walk(statement)]
        loads = [n for n in nodes if isinstance(getattr(n, "ctx", None), ast.Load)]
        own = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        own |= {n.arg for n in walk(one) if isinstance(n, ast.arg)}
        own -= {name for n in nodes if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
        asked = [n for n in loads if isinstance(n, ast.Attribute)]
        attributes = {n.attr for n in asked if not _is_of_others(n, imports)}
        names = {n.id for n in loads if isinstance(n, ast.Name)} - own
        found.setdefault(one.name, Reads()).add(Reads(attributes, names))
    return found


def _is_of_others(node: ast.Attribute, imports: Mapping[str, str]) -> bool:
    held: ast.expr = node
    while isinstance(held, ast.Attribute):
        held = held.value
    full = imports.get(held.id, "") if isinstance(held, ast.Name) else ""
    return full.partition(".")[0] in OTHERS


def merge(whole: ReadBy, others: Mapping[str, Reads]) -> None:
    for name, reads in others.items():
        whole.setdefault(name, Reads()).add(reads)


def reads_any(
    names: Collection[str], known: Mapping[str, Reads], is_one: Callable[[str, bool], bool]
) -> bool:
    """Whether functions of these names, and those that they name in turn, read such a thing.

    is_one: of a name, and whether it is one of what is around the function
    """
    seen, waiting = set[str](), [*names]
    while waiting:
        name = waiting.pop()
        reads = known.get(name)
        if name in seen or reads is None:
            continue
        seen.add(name)
        if any(is_one(one, False) for one in reads.attributes):
            return True
        if any(is_one(one, True) for one in reads.names):
            return True
        waiting += [*reads.attributes, *reads.names]
    return False
