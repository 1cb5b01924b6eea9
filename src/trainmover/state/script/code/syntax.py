# SPDX-License-Identifier: Apache-2.0
"""A file's syntax tree, made to be walked many times: what is below its nodes is listed once.

Whether a name is read or stored to (`ctx`) is a part of its node, and none below it.
"""

import ast
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BELOW, _SPAN = "_below", "_span"


def children(node: ast.AST) -> list[ast.AST]:
    """Directly below, in their order."""
    below: list[ast.AST] | None = node.__dict__.get(_BELOW)
    if below is None:
        below = node.__dict__[_BELOW] = list(_children(node))
    return below


def walk(node: ast.AST) -> list[ast.AST]:
    """The node and all below it, each before what is below it. A list of the caller's own."""
    span: _Span | None = node.__dict__.get(_SPAN)
    listed, first, end = _listed(node) if span is None else span
    return listed[first:end]


_Span = tuple[list[ast.AST], int, int]
"""A tree's nodes, and where one of them and all below it lie among them: from, up to."""


def _listed(root: ast.AST) -> _Span:
    """Of this tree, and of every node in it."""
    listed: list[ast.AST] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        listed.append(node)
        waiting += reversed(children(node))
    for first in range(len(listed) - 1, -1, -1):
        node = listed[first]
        below = children(node)
        end = below[-1].__dict__[_SPAN][2] if below else first + 1
        node.__dict__[_SPAN] = listed, first, end
    span: _Span = root.__dict__[_SPAN]
    return span


def last_name(node: ast.AST) -> str:
    """As `step` of `optimizer.step`; "" of what is no name and no attribute."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def called_name(node: ast.AST) -> str:
    """The name by which something is called; "" if nothing is, or without a name."""
    return last_name(node.func) if isinstance(node, ast.Call) else ""


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name in node._fields:
        part = getattr(node, name, None)
        if isinstance(part, list):
            yield from (one for one in part if isinstance(one, ast.AST))
        elif isinstance(part, ast.AST) and name != "ctx":
            yield part
