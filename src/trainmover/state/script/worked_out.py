# SPDX-License-Identifier: Apache-2.0
"""Expressions of a script, worked out from what its names stand for.

Nobody can read what `mean = 0.9 * mean + step(*next(batches))` has read before it fetches.
So the expression is worked out again: from constants, names, attributes and entries of plain
containers, with what the job itself says and a few functions of Python's that only calculate. None
of the script's code is run for it: what would need that (a function or a property of its own) is
not known.
"""

import ast
import operator
from collections import ChainMap, deque
from collections.abc import Callable, Mapping
from types import MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any

from trainmover.state.script.things.held import held_by
from trainmover.state.script.things.libraries import module_of

_OURS = __name__.partition(".")[0]
_CALCULATE: dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (range, int, float, abs, round, min, max, len, bool)
}
_NUMBERS = (bool, int, float)
_HOLD = (list, tuple, dict, deque, str, range)
_FIXED = (tuple, str, range)
"""Into which nothing can be put: the name stands for another then, and the loop has the old one."""
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Unknown(Exception):
    """Only the script's own code could tell."""


def worked_out(node: ast.expr, names: dict[str, Any], top: dict[str, Any]) -> Any:
    """names: of the frame. top: of its file; both are only read. Raises Unknown.

    >>> worked_out(ast.parse("range(2 if job['steps'] < 20 else 3)", mode="eval").body,
    ...            {"job": {"steps": 40}}, {})
    range(0, 3)
    """
    try:
        return _value(node, ChainMap(names, top))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise Unknown from error


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.Attribute(value=owner, attr=name):
            return _attribute(_value(owner, names), name)
        case ast.Subscript(value=held, slice=key):
            return _plain(_value(held, names), _HOLD)[_plain(_value(key, names), (int, str))]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _number(test, names) else orelse, names)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name not in names:
            return _CALCULATE[name](*(_plain(_value(one, names), _NUMBERS + _HOLD) for one in args))
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_number(left, names), _number(right, names))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _OPERATORS[type(op)](_number(left, names), _number(right, names))
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATORS[type(op)](_number(operand, names))
    raise Unknown


def _number(node: ast.expr, names: Mapping[str, Any]) -> Any:
    return _plain(_value(node, names), _NUMBERS)


def _plain(value: Any, kinds: tuple[type, ...]) -> Any:
    """Whose own code is Python's."""
    if type(value) not in kinds:
        raise Unknown
    return value


def _attribute(owner: object, name: str) -> Any:
    kind = type(owner)
    held = vars(owner) if isinstance(owner, ModuleType | SimpleNamespace) else held_by(owner)
    if name in held:
        return held[name]
    if isinstance(owner, type):
        raise Unknown
    if module_of(kind).startswith(_OURS):
        return getattr(owner, name)
    found = next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), Unknown)
    if type(found) is MemberDescriptorType:
        return found.__get__(owner)
    if kind in _HOLD and callable(found):
        return owner  # Its method is called on what it has by then.
    return _plain(found, _NUMBERS + _HOLD)
