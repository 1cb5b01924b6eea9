# SPDX-License-Identifier: Apache-2.0
"""What functions read of what is around them, as Python itself compiles them: also by what is
worked out where an inner one is defined, as its defaults, its decorators and its annotations are,
and by the bodies of classes.
"""

import ast
import dis
import warnings
from collections.abc import Iterator
from types import CodeType

from trainmover.state.script.code.syntax import walk

_AT_ONCE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Code that runs where it stands."""
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


def read_inside(tree: ast.Module) -> set[str]:
    """Names that functions in a file read and do not store: the file's globals, and names around.

    >>> sorted(read_inside(ast.parse("def f():\\n def g(a=b): return a + c\\n return g")))
    ['b', 'c']
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # It is said where the file itself is.
            code = compile(tree, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, TypeError):  # One that cannot run: whatever it names.
        return {node.id for node in walk(tree) if isinstance(node, ast.Name)}
    return {*_read_below(code, is_top=True)}


def _read_below(code: CodeType, *, is_top: bool) -> Iterator[str]:
    """is_top: it runs as a part of the file's own flow, which shows what it reads"""
    if not is_top:
        yield from code.co_freevars
        yield from (one.argval for one in dis.get_instructions(code) if one.opname in _LOADS)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _read_below(inner, is_top=is_top and inner.co_name in _AT_ONCE)
