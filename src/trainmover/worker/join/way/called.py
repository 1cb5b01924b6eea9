# SPDX-License-Identifier: Apache-2.0
"""What the script calls a step with, read again where the call stands.

Lines between a fetch and the first of several steps have made something else on a machine that
takes a rank than on the rank, and the call has read it. Once what the rank had kept is put in its
place, the same call would read that. Names, attributes and entries are read again, and what is
calculated of them, where that runs none of the script's code; of functions only methods of tensors
and arrays are called that leave these, and all else, as they are.
"""

import ast
import copy
import inspect
from types import FrameType
from typing import Any

import numpy
from torch import Tensor, nn

from trainmover.errors import StateMismatch
from trainmover.state.script.code.source import tree_of
from trainmover.state.script.code.syntax import walk
from trainmover.state.script.place.liveness import live_at
from trainmover.state.script.place.withs import Span

_READS = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.Starred),
    *(ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.UnaryOp, ast.Call, ast.keyword),
    *(ast.expr_context, ast.operator, ast.unaryop),
)
_GIVEN, _METHOD, _ATTRIBUTE, _PLAIN = "the arguments", "a method", "an attribute", "a plain value"
"""No name in any script."""
_NOTHING = object()
_RAISED = (
    *(ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
    StateMismatch,
)
_WITHOUT_CODE = frozenset(
    {Tensor, nn.Parameter, numpy.ndarray, list, tuple, dict, int, float, bool, str, complex}
)
_METHODS = frozenset(
    {"to", "cpu", "float", "double", "half", "bfloat16", "long", "int", "bool", "detach", "clone"}
    | {"contiguous", "view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute"}
    | {"size", "dim", "item", "tolist", "numpy", "mean", "sum", "std", "var", "max", "min", "abs"}
    | {"exp", "log", "copy", "astype", "split", "chunk", "expand", "repeat", "clamp", "get"}
)
_ATTRIBUTES = frozenset({"T", "mT", "shape", "dtype", "device", "data", "ndim", "real", "imag"})


class NotKnown(Exception):
    """Only the script's own code could tell."""


def called_with(frame: FrameType) -> tuple[Any, Any]:
    """Arguments by place and by name of the call that is under way there. Raises NotKnown.

    frame: of the script's
    """
    call = _call_at(frame)
    given = ast.Call(ast.Name(_GIVEN, ast.Load()), call.args, call.keywords)
    reads = [node for one in (*call.args, *call.keywords) for node in walk(one)]
    if not all(isinstance(node, _READS) for node in reads):
        raise NotKnown
    tree = ast.fix_missing_locations(ast.Expression(_Looked().visit(copy.deepcopy(given))))
    names = {**frame.f_locals, _GIVEN: lambda *args, **kwargs: (args, kwargs)}
    names |= {_METHOD: _method, _ATTRIBUTE: _attribute, _PLAIN: _plain}
    try:
        found: tuple[Any, Any] = eval(
            compile(tree, frame.f_code.co_filename, "eval"), frame.f_globals, names
        )
    except _RAISED:
        raise NotKnown from None
    return found


def _call_at(frame: FrameType) -> ast.Call:
    span, tree = live_at(frame.f_code, frame.f_lasti).call, tree_of(frame.f_code.co_filename)
    for node in walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and _span_of(node) == span:
            return node
    raise NotKnown


def _span_of(node: ast.expr) -> Span:
    return node.lineno, node.end_lineno or 0, node.col_offset, node.end_col_offset or 0


class _Looked(ast.NodeTransformer):
    """Has what anything is read of looked at first."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        func = node.func
        node.args = [self.visit(one) for one in node.args]
        node.keywords = [self.visit(one) for one in node.keywords]
        if isinstance(func, ast.Name) and func.id == _GIVEN:
            return node
        if not isinstance(func, ast.Attribute):
            raise NotKnown
        owner = self.visit(func.value)
        return ast.Call(_asked(_METHOD, owner, func.attr), node.args, node.keywords)

    def visit_Attribute(self, node: ast.Attribute) -> ast.Call:
        return _asked(_ATTRIBUTE, self.visit(node.value), node.attr)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        node.value = _asked(_PLAIN, self.visit(node.value))
        node.slice = self.visit(node.slice)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node.left = _asked(_PLAIN, self.visit(node.left))
        node.right = _asked(_PLAIN, self.visit(node.right))
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        node.operand = _asked(_PLAIN, self.visit(node.operand))
        return node


def _asked(function: str, owner: ast.expr, *names: str) -> ast.Call:
    return ast.Call(ast.Name(function, ast.Load()), [owner, *map(ast.Constant, names)], [])


def _plain(value: Any) -> Any:
    """What runs none of the script's code as it is calculated with."""
    if type(value) in _WITHOUT_CODE or isinstance(value, numpy.generic):
        return value
    raise NotKnown


def _attribute(owner: Any, name: str) -> Any:
    if type(owner) in _WITHOUT_CODE and name in _ATTRIBUTES:
        return getattr(owner, name)
    held = inspect.getattr_static(owner, name)
    if held is not vars(owner).get(name, _NOTHING):  # Of its class: who knows what it runs.
        raise NotKnown
    return held


def _method(owner: Any, name: str) -> Any:
    if type(owner) in _WITHOUT_CODE and name in _METHODS:
        return getattr(owner, name)
    raise NotKnown
