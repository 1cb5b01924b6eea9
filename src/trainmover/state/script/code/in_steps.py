"""Names of globals and attributes that steps may store to, by what the source says.

A step is a function that is marked (`@job.step`, `job.step(train)`); with it run all functions of
the script that it calls or names, and those that nobody calls by name: modules' `forward`, hooks,
lambdas.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trainmover.state.script.code import grammar
from trainmover.state.script.code.syntax import Function, called_name, last_name, walk

_CALLED_BY_NOBODY = frozenset({"forward", "__call__", "extra_repr"})


class Steps(NamedTuple):
    """marked  the functions that are steps
    bodies  all functions that run with them, these among them
    """

    marked: list[Function]
    bodies: list[ast.AST]


def steps_in(trees: Iterable[ast.Module]) -> Steps:
    """Of a script's files."""
    nodes = [node for tree in trees for node in walk(tree)]
    functions: dict[str, list[Function]] = {}
    for node in nodes:
        if isinstance(node, Function):
            functions.setdefault(node.name, []).append(node)
    marks = {name: None for node in nodes for name in _marked_by(node)}
    marked = [body for name in marks for body in functions.get(name, [])]
    bodies: list[ast.AST] = [node for node in nodes if isinstance(node, ast.Lambda)]
    waiting = [*marks, *(name for node in nodes for name in _hooked_by(node)), *_CALLED_BY_NOBODY]
    waiting += [name for body in bodies for name in _named_in(body)]
    known = set[str]()
    while waiting:
        name = waiting.pop()
        if name in functions and name not in known:
            known.add(name)
            bodies += functions[name]
            waiting += [one for body in functions[name] for one in _named_in(body)]
    return Steps(marked, bodies)


def stored_in_steps(steps: Steps) -> frozenset[str]:
    """`aux` of `trainer.aux = 0` and of `setattr(trainer, "aux", 0)`, `SEEN` of `SEEN.append(x)`
    and of `global SEEN`."""
    return frozenset(name for body in steps.bodies for name in _stored_in(body))


def _marked_by(node: ast.AST) -> Iterator[str]:
    """Names of functions that are marked as steps here."""
    if isinstance(node, Function):
        marks = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
        if any(isinstance(one, ast.Attribute) and one.attr == "step" for one in marks):
            yield node.name
    elif isinstance(node, ast.Call) and called_name(node) == "step":
        yield from (last_name(one) for one in node.args)


def _hooked_by(node: ast.AST) -> Iterator[str]:
    """Names of functions that are given to a hook here."""
    if isinstance(node, ast.Call) and "hook" in called_name(node):
        yield from (last_name(one) for one in node.args)


def _named_in(body: ast.AST) -> Iterator[str]:
    return (name for node in walk(body) if (name := last_name(node)))


def _stored_in(body: ast.AST) -> Iterator[str]:
    for node in walk(body):
        yield from (name for _, name in grammar.stored_by_name(node) if name is not None)
        match node:
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names
            case ast.Attribute(attr=attr, ctx=ast.Store() | ast.Del()):
                yield attr
            case _ if (changed := grammar.changed_in_place(node)) is not None:
                yield last_name(changed)
