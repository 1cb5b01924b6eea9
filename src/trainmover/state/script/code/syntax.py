"""A file's syntax tree, made to be walked many times: what is below a node is listed once.

Whether a name is read or stored to (`ctx`) is a part of its node, and none below it.
"""

import ast
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BELOW = "_below"


def children(node: ast.AST) -> list[ast.AST]:
    """Directly below, in their order."""
    below: list[ast.AST] | None = node.__dict__.get(_BELOW)
    if below is None:
        below = node.__dict__[_BELOW] = list(_children(node))
    return below


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it, each before what is below it."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(children(node))


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
