# SPDX-License-Identifier: Apache-2.0
"""What a statement has read before the call that is under way in it, as `mean` in
`mean = 0.9 * mean + 0.1 * step(next(batches))`.

What came of it lies where nobody can look, or put another value.
"""

import ast
from collections.abc import Iterator
from functools import lru_cache

from trainmover.state.script.code.source import source_of
from trainmover.state.script.code.syntax import children, walk
from trainmover.state.script.place.withs import Span

Read = ast.Name | ast.Attribute | ast.Subscript
_LATER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""What stands in these is read by a frame of their own."""


@lru_cache(maxsize=1024)
def read_before(path: str, call: Span | None) -> tuple[Read, ...]:
    """Names, and attributes and entries of what is named, each once.

    call: where the call stands; None: there is none
    """
    source = source_of(path) if call else None
    if source is None or source.tree is None or call is None:
        return ()
    around = [node for node in walk(source.tree) if isinstance(node, ast.stmt) and _has(node, call)]
    if not around:
        return ()
    found = _read(around[-1], (call[0], call[2]))
    return tuple({ast.unparse(one): one for one in found}.values())


def _has(node: ast.stmt, call: Span) -> bool:
    first, last, begin, end = call
    return (node.lineno, node.col_offset) <= (first, begin) and (last, end) <= _end_of(node)


def _end_of(node: ast.stmt | ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _read(node: ast.AST, until: tuple[int, int]) -> Iterator[Read]:
    if isinstance(node, ast.AugAssign):
        yield node.target  # It is read first, and stored to at the end.
    if isinstance(node, _LATER) or isinstance(getattr(node, "ctx", None), ast.Store):
        return
    if isinstance(node, Read) and _end_of(node) <= until:
        yield node
        return
    for below in children(node):
        yield from _read(below, until)
