# SPDX-License-Identifier: Apache-2.0
"""Where a script asks whether there is a time, rather than what time it is: `since is None`, `if
alarms:`, `started > 0` where it began with 0. The answer is the same on all machines, and may
decide what is trained.
"""

import ast
from collections.abc import Iterator

from trainmover.state.script.code import grammar
from trainmover.state.script.code.syntax import called_name, children

_ORDERS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot)
_GO_THROUGH = frozenset(
    {"list", "tuple", "set", "frozenset", "sorted", "reversed", "enumerate", "zip", "iter", "deque"}
    | {"filter", "map"}
)
_VIEWS = frozenset({"items", "values", "keys", "copy"})
_BOOLS = frozenset({"bool", "isinstance", "any", "all", "callable"})


def begins_with(value: ast.expr) -> bool:
    """Whether a variable that is to get a time has this as long as it has none."""
    match value:
        case ast.Constant(value=None | "" | False):
            return True
        case ast.Constant(value=int() | float() as number):
            return number == 0
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)):
            return True
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str())]):
            return True
        case ast.Attribute(attr="inf" | "nan"):
            return True
    return False


def asks_whether(node: ast.AST) -> str:
    """The path of what an expression asks for only whether it is there; "" of any other."""
    match node:
        case ast.Compare(left=one, ops=[op], comparators=[other]) if isinstance(op, _ORDERS):
            if begins_with(other):
                return path_of(one)
            return path_of(other) if begins_with(one) else ""
        case ast.UnaryOp(op=ast.Not(), operand=held):
            return path_of(held) or asks_whether(held)
        case ast.Call(func=ast.Name(id="hasattr"), args=[_, ast.Constant(value=str() as name)]):
            return f".{name}"
        case ast.Call(args=[held, *_]) if called_name(node) in _BOOLS:
            return path_of(held)
    return ""


def path_of(node: ast.expr) -> str:
    """As `grammar.path`; of a function that is called, its name and "()"."""
    match node:
        case ast.NamedExpr(target=target):
            return grammar.path(target)
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str() as name), *_]):
            return f".{name}"
        case ast.Call():
            return f"{called_name(node)}()"
    return grammar.path(node)


def as_truth(test: ast.expr) -> Iterator[str]:
    """Paths of what is true or false by itself in what decides: `if alarms and not since:`."""
    match test:
        case ast.BoolOp(values=values):
            for one in values:
                yield from as_truth(one)
        case ast.UnaryOp(op=ast.Not(), operand=held):
            yield from as_truth(held)
        case ast.Name() | ast.Attribute() | ast.Subscript() | ast.Call() | ast.NamedExpr():
            if path := path_of(test):
                yield path


def gone_through(node: ast.expr) -> Iterator[str]:
    """Paths of containers of which a loop makes as many rounds as there is in them."""
    match node:
        case ast.Call(func=ast.Attribute(value=held, attr=name)) if name in _VIEWS:
            yield from gone_through(held)
        case ast.Call(args=given) if called_name(node) in _GO_THROUGH:
            for one in given:
                yield from gone_through(one)
        case ast.Subscript(value=held, slice=ast.Slice()):
            yield from gone_through(held)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
            for made in node.generators:
                yield from gone_through(made.iter)
        case _ if path := path_of(node):
            yield path


def is_answer(value: ast.AST) -> bool:
    """Whether a value is true or false by what it compares."""
    if isinstance(value, ast.BoolOp):
        return any(map(is_answer, value.values))
    is_not = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    return is_not or isinstance(value, ast.Compare) or called_name(value) in _BOOLS


def paths_in(value: ast.AST) -> Iterator[str]:
    """Of all names and attributes that a value is made of, and of functions that are called."""
    if isinstance(value, ast.expr) and (path := path_of(value)):
        yield path
    for child in children(value):
        yield from paths_in(child)
