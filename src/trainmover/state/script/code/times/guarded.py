# SPDX-License-Identifier: Apache-2.0
"""What a script stores only where it has asked `job.is_shadow`: the file that it writes to, a
writer. A run in the sandbox has none of that, and need not, as long as it is used as the tool that
it is and says nothing of what is trained.

The best loss, which is kept where the file is written, is no such thing: the next comparison reads
it. Nor is a sum that is printed at the end, though only where the same is asked: it is the rank's.
Nor a mark that something was done. So a name that is read as a value anywhere is a variable like
others.
"""

import ast
from collections.abc import Iterator

from trainmover.state.script.code.grammar import given_to, stores_of
from trainmover.state.script.code.syntax import called_name, children, last_name, walk

_NAMED_FIRST = frozenset(
    {"open", "Path", "remove", "unlink", "rmtree", "rename", "copyfile", "exists"}
    | {"writer", "DictWriter"}
)
"""Functions that are given a file, or its name; of others it is the second."""
_NAMED_SECOND = frozenset({"dump", "save", "save_file", "savez", "savetxt"})
_FILE = "file"
"""What `print` is given it as."""
_AROUND = (ast.BoolOp, ast.UnaryOp, ast.Compare, ast.keyword)
"""What may lie between a test, or a call, and what it asks for."""


def asks_for_shadow(test: ast.expr) -> bool:
    """Whether a test reads `is_shadow`."""
    return any(isinstance(node, ast.Attribute) and node.attr == "is_shadow" for node in walk(test))


def read_as_values(tree: ast.Module) -> set[str]:
    """Names and attributes that are read as more than tools, wherever that is.

    >>> sorted(read_as_values(ast.parse("if a < best and not job.is_shadow: writer.add(loss)")))
    ['a', 'best', 'loss']
    """
    return {*_Reading(tree).read(tree, is_guarded=False)}


class _Reading:
    """Of one file."""

    def __init__(self, tree: ast.Module) -> None:
        self._marks = {*_marks(tree)}

    def read(self, node: ast.AST, *, is_guarded: bool) -> Iterator[str]:
        """is_guarded: whether `is_shadow` was asked around it"""
        free: list[ast.expr] = []
        match node:
            case ast.If(test=test):
                is_guarded = is_guarded or asks_for_shadow(test)
                free = [
                    one
                    for one in _asked_for(test)
                    if last_name(one) not in self._marks and (is_guarded or _only_uses(node, one))
                ]
            case ast.Expr(value=ast.Call() as call) if _used_by(call):
                files = [*_files_given(call)] if is_guarded else []
                for given in given_to(call):
                    if given not in files:
                        yield from self.read(given, is_guarded=is_guarded)
                return
            case ast.AugAssign(target=target) if not is_guarded:
                yield from _name(target)
            case ast.withitem(context_expr=ast.Name() | ast.Attribute() as held) if is_guarded:
                free = [held]
            case ast.Call() if is_guarded:
                free = [*_files_given(node)]
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                yield from _name(node)
        left_out = {id(inner) for one in free for inner in walk(one)}
        for child in children(node):
            yield from self._but(left_out, child, is_guarded=is_guarded)

    def _but(self, left_out: set[int], node: ast.AST, *, is_guarded: bool) -> Iterator[str]:
        """What is not among these."""
        if id(node) in left_out:
            return
        if left_out and isinstance(node, _AROUND):
            for child in children(node):
                yield from self._but(left_out, child, is_guarded=is_guarded)
            return
        yield from self.read(node, is_guarded=is_guarded)


def _marks(tree: ast.Module) -> Iterator[str]:
    """Names of what is stored as true or false, or as a number: to ask for that is to read it."""
    for node in walk(tree):
        for target, value in stores_of(node):
            is_mark = isinstance(value, ast.Constant) and isinstance(value.value, int | float)
            is_mark = is_mark or isinstance(value, ast.Compare | ast.BoolOp | ast.UnaryOp)
            if is_mark or isinstance(node, ast.AugAssign):
                yield last_name(target)


def _asked_for(test: ast.expr) -> Iterator[ast.expr]:
    """`if writer:` and `writer is not None` ask for no value, alone or beside other conditions."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            for one in values:
                yield from _asked_for(one)
        case ast.UnaryOp(op=ast.Not(), operand=held):
            yield from _asked_for(held)
        case ast.Name() | ast.Attribute():
            yield test
        case ast.Compare(
            left=ast.Name() | ast.Attribute() as held,
            ops=[ast.Is() | ast.IsNot()],
            comparators=[ast.Constant(value=None)],
        ):
            yield held


def _only_uses(node: ast.If, tool: ast.expr) -> bool:
    """Whether all that is done where there is such a tool is done with it."""
    waiting, its = [*node.body, *node.orelse], ast.dump(tool)
    for one in waiting:
        match one:
            case ast.If(body=body, orelse=orelse) | ast.For(body=body, orelse=orelse):
                waiting += [*body, *orelse]
            case ast.With(body=body):
                waiting += body
            case ast.Expr(value=ast.Call() as call):
                if called_name(call) != "print" and its not in _used_by(call):
                    return False
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case _:
                return False
    return True


def _files_given(call: ast.Call) -> Iterator[ast.expr]:
    """What is given to a function as the file that it writes, or as its name."""
    name = called_name(call)
    given = call.args if name in _NAMED_FIRST else call.args[1:] if name in _NAMED_SECOND else []
    yield from (one for one in given if isinstance(one, ast.Name | ast.Attribute))
    yield from (one.value for one in call.keywords if one.arg == _FILE)


def _used_by(call: ast.Call) -> list[str]:
    """Of `self.writer.add(...)` as a statement, of which nobody has what comes: what is used, each
    as Python's own text; []: it is no such."""
    held, found = call.func, list[str]()
    while isinstance(held, ast.Attribute):
        held = held.value
        found.append(ast.dump(held))
    return found if isinstance(held, ast.Name) else []


def _name(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
