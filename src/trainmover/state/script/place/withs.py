# SPDX-License-Identifier: Apache-2.0
"""The `with` statements of a code object, and those that an instruction is in.

What ends one lies on the frame's stack: the `__exit__` of its manager. At which level follows from
the table of what handles exceptions, as does which statements are around.
"""

import ast
import contextlib
import dis
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

from trainmover.state.script.code.source import tree_of
from trainmover.state.script.code.syntax import walk

Span = tuple[int, int, int, int]
"""Of an expression: its first line, its last, its first column, its last."""
EXITS = ("__exit__", "__aexit__")
STACKS = (contextlib.ExitStack, contextlib.AsyncExitStack)
_OPENS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL"})
_BEFORE_OPENS = _OPENS | {"COPY", "SWAP", "NOP", "CACHE", "EXTENDED_ARG"}


@dataclass(frozen=True)
class Handler:
    """start, end  offsets of the instructions from which it goes on at `target` if one raises
    depth       values that lie on the stack below what is put there for it
    """

    start: int
    end: int
    target: int
    depth: int


@dataclass(frozen=True)
class With:
    """One manager of a statement.

    handler  offset at which an exception goes on that comes out of its body
    level    where on the stack its `__exit__` lies
    made_at  where the last part of the expression stands whose value the manager is
    """

    handler: int
    level: int
    made_at: Span | None


@lru_cache(maxsize=1024)
def handlers(code: CodeType) -> tuple[Handler, ...]:
    entries = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    return tuple(Handler(one.start, one.end, one.target, one.depth) for one in entries)


@lru_cache(maxsize=1024)
def withs(code: CodeType) -> dict[int, With]:
    """By the offset of the handler."""
    every = list(dis.get_instructions(code))
    at = {one.offset: number for number, one in enumerate(every)}
    found: dict[int, With] = {}
    for one in handlers(code):
        ahead = every[at[one.target] : at[one.target] + 3]
        if one.target in found or all(each.opname != "WITH_EXCEPT_START" for each in ahead):
            continue
        opens = at.get(one.start, 0)
        while opens > 0 and every[opens].opname not in _OPENS:
            opens -= 1
        while opens > 0 and every[opens].opname in _BEFORE_OPENS:
            opens -= 1
        found[one.target] = With(one.target, one.depth - 1, span_of(every[opens].positions))
    return found


def around(code: CodeType, lasti: int) -> list[With]:
    """Outermost first."""
    known = withs(code)
    return [known[one] for one in reversed(handled_at(code, lasti)) if one in known]


@lru_cache(maxsize=1024)
def handled_at(code: CodeType, lasti: int) -> tuple[int, ...]:
    """Offsets of the handlers that an exception comes to, one after the other, if none catches it;
    innermost first."""
    found: list[int] = []
    offset: int | None = lasti
    while offset is not None:
        offset = next((one.target for one in handlers(code) if one.start <= offset < one.end), None)
        if offset in found:
            break
        if offset is not None:
            found.append(offset)
    return tuple(found)


@lru_cache(maxsize=1024)
def made_by(path: str, made_at: Span | None) -> ast.expr | None:
    """The expression whose value is the manager; None: nobody knows."""
    tree = tree_of(path) if made_at else None
    if tree is None or made_at is None:
        return None
    statements = (one for one in walk(tree) if isinstance(one, ast.With | ast.AsyncWith))
    every = [item.context_expr for one in statements for item in one.items]
    return max((one for one in every if _has(one, made_at)), key=_begin_of, default=None)


def _has(node: ast.expr, part: Span) -> bool:
    first, last, begin, end = part
    end_of = node.end_lineno or 0, node.end_col_offset or 0
    return _begin_of(node) <= (first, begin) and (last, end) <= end_of


def _begin_of(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def span_of(where: dis.Positions | None) -> Span | None:
    match where:
        case (int() as first, int() as last, int() as begin, int() as end):
            return first, last, begin, end
    return None
