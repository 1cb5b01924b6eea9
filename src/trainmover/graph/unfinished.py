# SPDX-License-Identifier: Apache-2.0
"""Expressions that a fetch interrupts: values on the stacks of frames, which no graph has.

    total = total + next(it)        `total` has been read, and no other process has that value
    sum(map(step, batches))         the sum so far lies in C

Whatever an expression has read before the call under way is such a value, but for objects that are
filled in place, as models are, and stay what they are.
"""

import ast
import builtins
import types
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import Tensor

from trainmover.graph.frames import position_of

_GIVES_ONE = {"next", "anext", "__next__"}
"""Builtins that ask an iterator for one item; others go through it in C."""
_REPLACED = (bool, int, float, complex, str, bytes, tuple, frozenset, Tensor)
"""Types of values for which another one is put in their place."""


def unfinished(frames: list[types.FrameType]) -> str:
    """Return what lies on the stacks of these frames, with file and line, for people; "": nothing.

    The innermost one stands at a fetch, the others at a call.
    """
    for frame in frames:
        for node in _read_before(frame.f_code, frame.f_lasti):
            if not _stays(frame, node):
                return f"`{ast.unparse(node)}` ({_line_of(frame)})"
        if (name := _called(frame.f_code, frame.f_lasti)) and _goes_through(frame, name):
            return f"what `{name}` collects ({_line_of(frame)})"
    return ""


def _line_of(frame: types.FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name} line {frame.f_lineno}"


def _stays(frame: types.FrameType, node: ast.expr) -> bool:
    """Whether it is a constant, or a name of an object that is filled in place."""
    if not isinstance(node, ast.Name):
        return isinstance(node, ast.Constant)
    value = frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    return not isinstance(value, _REPLACED)


@lru_cache(maxsize=1024)
def _read_before(code: types.CodeType, instruction: int) -> tuple[ast.expr, ...]:
    """Return what a statement has read before the call under way."""
    around = [*_path_to(code, instruction)][:-1]
    return tuple(one for node, child in around for one in _evaluated_before(node, child))


@lru_cache(maxsize=1024)
def _called(code: types.CodeType, instruction: int) -> str:
    """Return the plain name of the function whose call is under way; "": it has none."""
    path = [*_path_to(code, instruction)]
    node = path[-1][0] if path else None
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return node.func.id if is_call else ""  # type: ignore[union-attr]


def _goes_through(frame: types.FrameType, name: str) -> bool:
    """Whether a builtin of this name, which the frame calls, goes through what it is given."""
    shadowed = name in frame.f_code.co_varnames or name in frame.f_globals
    found: Any = getattr(builtins, name, None)
    is_c = isinstance(found, types.BuiltinFunctionType | type)
    return is_c and not shadowed and name not in _GIVES_ONE


def _path_to(code: types.CodeType, instruction: int) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Give the nodes from a statement to the expression under way, each with its child on the way;
    the last one with itself. Nothing where the frame is at no call."""
    line, end_line, column, end_column = position_of(code, instruction)
    tree = _tree(code.co_filename)
    if tree is None or line is None:
        return
    node: ast.AST | None = _statement_at(tree, line, column or 0)
    while node is not None:
        here = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)  # type: ignore[attr-defined]
        if here == (line, end_line, column, end_column) and isinstance(node, ast.Call):
            yield node, node
            return
        child = _child_at(node, line, column or 0)
        if child is not None:
            yield node, child
        node = child


@lru_cache(maxsize=64)
def _tree(path: str) -> ast.Module | None:
    try:
        return ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _statement_at(tree: ast.AST, line: int, column: int) -> ast.AST | None:
    """Return the innermost statement around a place."""
    found, node = None, tree
    while True:
        inside = (one for one in ast.walk(node) if isinstance(one, ast.stmt) and one is not node)
        better = next((one for one in inside if _holds(one, line, column)), None)
        if better is None:
            return found
        found = node = better


def _child_at(node: ast.AST, line: int, column: int) -> ast.AST | None:
    children = (one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.stmt))
    return next((one for one in children if _holds(one, line, column)), None)


def _holds(node: ast.AST, line: int, column: int) -> bool:
    begin = getattr(node, "lineno", None), getattr(node, "col_offset", 0)
    if begin[0] is None:
        return any(_holds(one, line, column) for one in ast.iter_child_nodes(node))
    end = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
    return begin <= (line, column) < end


def _evaluated_before(node: ast.AST, child: Any) -> Iterator[ast.expr]:
    """Give the parts of an expression that were evaluated before this part, and are kept for it."""
    if isinstance(node, ast.AugAssign):
        yield node.target
    elif isinstance(node, ast.Call):
        parts = [*node.args, *[one.value for one in node.keywords]]
        inside = child.value if isinstance(child, ast.keyword) else child
        yield from parts[: parts.index(inside)] if inside in parts else ()
    elif isinstance(node, ast.BinOp):
        yield from [node.left] if child is node.right else []
    elif isinstance(node, ast.Compare):
        yield from [node.left] if child is not node.left else []
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        yield from node.elts[: node.elts.index(child)]
    elif isinstance(node, ast.Dict):
        parts = [one for pair in zip(node.keys, node.values, strict=True) for one in pair if one]
        yield from parts[: parts.index(child)]
    elif isinstance(node, ast.Subscript) and child is node.slice:
        yield node.value
