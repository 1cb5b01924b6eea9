"""Names of globals and attributes that steps may store to, by what the source says.

A step is a function that is marked (`@job.step`, `job.step(train)`); with it run all functions of
the script that it calls or names, and those that nobody calls by name: modules' `forward`, hooks,
lambdas, what operators and `with` call, and what libraries call of a class that is derived from one
of theirs (`emit` of a handler of the log).
"""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trainmover.state.script.code import grammar
from trainmover.state.script.code.syntax import Function, called_name, last_name, walk

_CALLED_BY_NOBODY = frozenset({"forward", "__call__", "extra_repr"})
_OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.MatMult: "matmul", ast.Div: "truediv",
    ast.Mod: "mod", ast.Pow: "pow", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitOr: "or",
    ast.BitXor: "xor", ast.BitAnd: "and", ast.FloorDiv: "floordiv",
}  # fmt: skip
_COMPARED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__")
_NO_CALLER = frozenset({"object", "ABC", "Protocol", "Generic", "NamedTuple", "TypedDict"})


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
    waiting += _called_by_libraries(nodes)
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


def _called_by_libraries(nodes: list[ast.AST]) -> Iterator[str]:
    """Methods that the script itself never names, of classes that are derived from others' ones."""
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    own = {one.name for one in classes}
    named = {last_name(node) for node in nodes if not isinstance(node, Function)}
    for one in classes:
        bases = {last_name(base) for base in one.bases}
        if bases - own - _NO_CALLER or (bases & own):
            names = (method.name for method in one.body if isinstance(method, Function))
            yield from (name for name in names if name[:2] != "__" and name not in named)


def _named_in(body: ast.AST) -> Iterator[str]:
    for node in walk(body):
        if name := last_name(node):
            yield name
        yield from _meant_by(node)


def _meant_by(node: ast.AST) -> Iterator[str]:
    """Methods that a piece of syntax calls. Not those by which data is read: a fetch does that."""
    match node:
        case ast.With():
            yield from ("__enter__", "__exit__")
        case ast.AsyncWith():
            yield from ("__aenter__", "__aexit__")
        case ast.AugAssign(op=op) | ast.BinOp(op=op):
            name = _OPERATORS[type(op)]
            yield from (f"__{name}__", f"__i{name}__", f"__r{name}__")
        case ast.Compare():
            yield from _COMPARED
        case ast.Subscript(ctx=ast.Store()):
            yield "__setitem__"
        case ast.Subscript(ctx=ast.Del()):
            yield "__delitem__"
        case ast.Attribute(ctx=ast.Store()):
            yield "__setattr__"
        case ast.Call(func=ast.Name(id="float" | "int" | "bool" as kind)):
            yield f"__{kind}__"


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
