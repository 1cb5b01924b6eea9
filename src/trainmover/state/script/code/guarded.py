"""What a script stores only where it has asked `job.is_shadow`: the name of the last file that it
wrote, a writer. A run in the sandbox has none of that, and need not: whatever it is, it is read
where the same was asked, or only used as the tool that it is.

The best loss, which is kept where the file is written, is no such thing: the next comparison reads
it. So a name that is read as a value elsewhere is a variable like others.
"""

import ast
from collections.abc import Iterator

from trainmover.state.script.code.grammar import given_to
from trainmover.state.script.code.syntax import children, walk


def asks_for_shadow(test: ast.expr) -> bool:
    """Whether a test reads `is_shadow`."""
    return any(isinstance(node, ast.Attribute) and node.attr == "is_shadow" for node in walk(test))


def read_elsewhere(tree: ast.Module) -> set[str]:
    """Names and attributes that are read as values outside of what such a test decides.

    >>> sorted(read_elsewhere(ast.parse("if a < best and not job.is_shadow: best, last = a, b")))
    ['a', 'best', 'is_shadow']
    """
    return set(_read(tree, tree))


def _read(node: ast.AST, parent: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.If) and asks_for_shadow(node.test):
        yield from _read(node.test, node)
        return
    match node:
        case ast.Expr(value=ast.Call() as call) if _is_use(call):
            for given in given_to(call):
                yield from _read(given, call)
            return
        case ast.AugAssign(target=target):
            yield from _name(target)
        case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
            if not _is_tool(node, parent):
                yield from _name(node)
    for child in children(node):
        yield from _read(child, node)


def _is_tool(node: ast.expr, parent: ast.AST) -> bool:
    """`if writer:` and `writer is not None` ask for no value."""
    match parent:
        case ast.If(test=test):
            return test is node
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
    return False


def _is_use(call: ast.Call) -> bool:
    """`writer.add(...)` as a statement: nobody has what comes of it."""
    held: ast.expr = call.func
    while isinstance(held, ast.Attribute):
        held = held.value
    return isinstance(held, ast.Name) and held is not call.func


def _name(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
