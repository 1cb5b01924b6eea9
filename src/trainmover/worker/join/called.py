"""What the script calls a step with, read again where the call stands.

Lines between a fetch and the first of several steps have made something else on a machine that
takes a rank than on the rank, and the call has read it. Once what the rank had kept is put in its
place, the same call would read that. Names, attributes and entries are read again, and what is
calculated of them; of functions only methods of tensors and arrays are called that leave these as
they are.
"""

import ast
import copy
from types import FrameType
from typing import Any

import numpy
from torch import Tensor

from trainmover.state.script.code.source import tree_of
from trainmover.state.script.code.syntax import walk
from trainmover.state.script.place.liveness import live_at
from trainmover.state.script.place.withs import Span

_READS = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.Starred),
    *(ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.UnaryOp, ast.Call, ast.keyword),
    *(ast.expr_context, ast.operator, ast.unaryop),
)
_GIVEN, _METHOD = "the arguments", "a method"
"""No name in any script."""


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
    tree = ast.fix_missing_locations(ast.Expression(_Methods().visit(copy.deepcopy(given))))
    names = {**frame.f_locals, _GIVEN: lambda *args, **kwargs: (args, kwargs), _METHOD: _method}
    try:
        found: tuple[Any, Any] = eval(
            compile(tree, frame.f_code.co_filename, "eval"), frame.f_globals, names
        )
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
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


class _Methods(ast.NodeTransformer):
    """Has what is called looked at first."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        match node.func:
            case ast.Name(id=name) if name == _GIVEN:
                return node
            case ast.Attribute(value=owner, attr=name):
                asked = ast.Call(ast.Name(_METHOD, ast.Load()), [owner, ast.Constant(name)], [])
                return ast.Call(asked, node.args, node.keywords)
        raise NotKnown


def _method(owner: object, name: str) -> Any:
    if isinstance(owner, Tensor | numpy.ndarray | numpy.generic) and not name.endswith("_"):
        return getattr(owner, name)
    raise NotKnown
