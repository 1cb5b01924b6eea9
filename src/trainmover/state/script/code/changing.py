# SPDX-License-Identifier: Apache-2.0
"""What changes in place, as far as its name says so; and what shares the memory of what."""

import ast
from collections.abc import Collection, Iterator

from trainmover.state.script.code.syntax import called_name

CHANGES = frozenset(
    {"append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem"}
    | {"remove", "discard", "add", "clear", "update", "setdefault", "sort", "reverse", "rotate"}
    | {"subtract", "difference_update", "intersection_update", "symmetric_difference_update"}
    | {"move_to_end", "fill", "put", "partition", "resize", "itemset", "__setitem__"}
    | {"__delitem__", "__iadd__", "frombytes", "fromlist"}
)
"""Methods of containers and arrays that change them; torch's own end with an underscore."""
CHANGES_FIRST = frozenset(
    {"heappush", "heappop", "heappushpop", "heapreplace", "heapify", "insort", "insort_left"}
    | {"insort_right", "shuffle", "at", "copyto", "putmask", "place", "put_along_axis"}
    | {"fill_diagonal"}
)
"""Functions of libraries that change what they are given first."""
VIEWS = frozenset(
    {"view", "reshape", "select", "narrow", "detach", "numpy", "flatten", "ravel", "t", "squeeze"}
    | {"unsqueeze", "transpose", "permute", "unbind", "split", "chunk", "expand_as", "diagonal"}
    | {"values", "items", "get", "view_as", "expand"}
)
"""Methods whose result shares memory, or is made of what the object holds."""
SAME = frozenset({"data", "T", "mT", "H", "real", "imag", "flat"})
"""Attributes that do."""
PASSES_ON = frozenset(
    {"iter", "next", "list", "tuple", "sorted", "reversed", "enumerate", "zip", "min", "max"}
)
"""Functions whose results are made of what they are given."""


def is_change(name: str) -> bool:
    """A method that changes its object; a function, what it is given first."""
    return name in CHANGES or is_in_place(name)


def is_in_place(name: str) -> bool:
    """As torch names what changes its object, or what it is given first."""
    return name.endswith("_") and not name.endswith("__")


def changed_in(node: ast.AST, libraries: Collection[str]) -> Iterator[str]:
    """Roots of what changes there.

    libraries: names of modules whose functions change what they are given first, as
    torch._foreach_add_ does
    """
    match node:
        case ast.Call(func=func) if is_change(called_name(node)):
            if isinstance(func, ast.Name) or root_of(func) in libraries:
                yield from map(root_of, node.args[:1] if is_in_place(called_name(node)) else [])
            else:
                yield root_of(func)
        case ast.Call(func=ast.Attribute(value=value)) if is_asked_to_change(node):
            yield root_of(value)
        case ast.AugAssign(target=target) | ast.keyword(arg="out", value=target):
            yield root_of(target)
        case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
            yield root_of(value)


def is_asked_to_change(call: ast.Call) -> bool:
    """As `frame.sort_values("loss", inplace=True)` is."""
    asked = (one.value for one in call.keywords if one.arg == "inplace")
    return any(not (isinstance(one, ast.Constant) and not one.value) for one in asked)


def root_of(node: ast.AST) -> str:
    """The name that an object is reached from: `a` of `a[0].view(-1)`; "" if there is none."""
    while True:
        match node:
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in VIEWS:
                node = inner
            case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in PASSES_ON:
                node = inner
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner):
                node = inner
            case _:
                return node.id if isinstance(node, ast.Name) else ""
