# SPDX-License-Identifier: Apache-2.0
"""Whether lines of a script do nothing else than to read tensors, numbers, and containers of these:
then they may be run once more, and nobody sees it.

What a call does is judged by what is called: methods by names that tensors and containers have for
what only reads, functions of libraries by theirs, and the script's own by their lines. In doubt
they do more.
"""

import ast
import builtins
import inspect
from collections import ChainMap
from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from trainmover.state.script.code import grammar
from trainmover.state.script.code.syntax import Function, last_name, walk
from trainmover.state.script.place.swallowing import function_at
from trainmover.state.script.things.held import goes_on_later

NOTHING = object()
_DEPTH_MAX = 3
_LIBRARIES = ("torch", "numpy", "math", "statistics")
_CONTEXTS = frozenset({"no_grad", "inference_mode", "enable_grad", "autocast", "record_function"})
_OF_TENSORS = frozenset(
    {"abs", "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "bincount", "bool", "ceil"}
    | {"clamp", "clip", "clone", "contiguous", "count_nonzero", "cpu", "cumsum", "detach", "diff"}
    | {"dim", "div", "double", "eq", "exp", "expand", "expand_as", "flatten", "float", "floor"}
    | {"gather", "gt", "half", "int", "isfinite", "isinf", "isnan", "le", "log", "log1p", "log10"}
    | {"log2", "log_softmax", "logical_and", "logical_not", "logical_or", "logsumexp", "long", "lt"}
    | {"masked_select", "matmul", "max", "maximum", "mean", "median", "min", "minimum", "mul", "ne"}
    | {"nonzero", "norm", "numel", "permute", "pow", "prod", "quantile", "reciprocal", "reshape"}
    | {"round", "rsqrt", "sigmoid", "sign", "size", "softmax", "sqrt", "square", "squeeze"}
    | {"std", "sub", "sum", "t", "tanh", "to", "topk", "transpose", "type", "unsqueeze", "var"}
    | {"var_mean", "view", "where", "add", "item", "tolist", "unique", "ge"}
)
"""Methods of tensors that only read, functions of torch that do the same, and of numpy."""
_OF_LIBRARIES = _OF_TENSORS | frozenset(
    {"as_tensor", "asarray", "array", "average", "binary_cross_entropy", "cat", "concatenate"}
    | {"binary_cross_entropy_with_logits", "cosine_similarity", "cross_entropy", "fabs", "fsum"}
    | {"fmean", "huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss", "normalize", "one_hot"}
    | {"smooth_l1_loss", "sort", "stack", "stdev", "tensor", "zeros_like", "ones_like"}
)
_OF_VALUES = frozenset({"get", "keys", "values", "items", "index", "count", "format", "join"})
ONLY_READ = _OF_TENSORS | _OF_VALUES
"""Methods, by name."""
_BUILTINS = frozenset(
    {"abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "isinstance"}
    | {"len", "list", "max", "min", "pow", "range", "reversed", "round", "sorted", "str", "sum"}
    | {"tuple", "zip"}
)
_READ = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.Starred, ast.keyword),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.comprehension),
    *(ast.Tuple, ast.List, ast.Dict, ast.Set, ast.JoinedStr, ast.FormattedValue, ast.ListComp),
    *(ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.expr_context, ast.operator, ast.cmpop),
    *(ast.unaryop, ast.boolop),
)


class Reader:
    """Judges whether lines do nothing else than to read.

    known  globals of their function
    held   its variables
    """

    def __init__(self, known: dict[str, Any], held: dict[str, Any], depth: int = 0) -> None:
        self._held, self._depth = held, depth
        self._at_hand = ChainMap(held, known, vars(builtins))

    def only_reads(self, node: ast.AST) -> bool:
        """node: a store to variables, a `return`, or a value"""
        match node:
            case ast.Return(value=value) | ast.Assign(value=value) | ast.AnnAssign(value=value):
                return value is None or self.only_reads(value)
        return all(
            isinstance(one, _READ) and (not isinstance(one, ast.Call) or self._is_read(one))
            for one in walk(node)
        )

    def _is_read(self, call: ast.Call) -> bool:
        """Whether this call only reads what it is given."""
        if any(word.arg == "out" for word in call.keywords):
            return False
        name, called = last_name(call.func), self._called(call.func)
        if called is NOTHING:
            return isinstance(call.func, ast.Attribute) and name in ONLY_READ
        if called is getattr(builtins, name, NOTHING):
            return name in _BUILTINS
        if _is_of_library(called):
            return name in _OF_LIBRARIES
        return isinstance(called, FunctionType) and self._only_reads_function(called)

    def _called(self, function: ast.expr) -> Any:
        """The function itself, where it is one of a file, a module or a class. NOTHING: a method
        of some value."""
        match function:
            case ast.Name(id=name):
                return self._at_hand.get(name, NOTHING)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in self._held:
                found = inspect.getattr_static(type(self._held[name]), attribute, NOTHING)
                return found.__func__ if isinstance(found, staticmethod) else _own(found)
            case ast.Attribute(value=owner, attr=attribute):
                inside = self._called(owner)
                if isinstance(inside, ModuleType):
                    return getattr(inside, attribute, NOTHING)
        return NOTHING

    def _only_reads_function(self, function: FunctionType) -> bool:
        """One of the script's own: it changes variables of its own alone."""
        inside = inspect.unwrap(function)
        code = getattr(inside, "__code__", None)
        if code is None or self._depth == _DEPTH_MAX or goes_on_later(code):
            return False
        node = function_at(code.co_filename, (code.co_name, code.co_firstlineno))
        if not isinstance(node, Function) or not all(map(_is_plain_decorator, node.decorator_list)):
            return False
        reader = Reader(inside.__globals__, {}, self._depth + 1)
        return reader.block(node.body, _made_in(node))

    def block(self, body: Iterable[ast.stmt], made: set[str]) -> bool:
        """Statements of a function. made: variables that hold what it has made itself"""
        return all(self._is_harmless(one, made) for one in flat(body))

    def _is_harmless(self, one: ast.stmt, made: set[str]) -> bool:
        match one:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return True
            case ast.Assign(targets=targets):
                return all(map(is_of_names, targets)) and self.only_reads(one)
            case ast.AnnAssign(target=ast.Name()) | ast.Return():
                return self.only_reads(one)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                return name in made and self.only_reads(value)
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append")) as call
            ):
                return name in made and all(map(self.only_reads, call.args))
            case ast.If(test=test, body=body, orelse=orelse):
                return self.only_reads(test) and self.block([*body, *orelse], made)
            case ast.For(target=target, iter=values, body=body, orelse=orelse):
                reads = is_of_names(target) and self.only_reads(values)
                return reads and self.block([*body, *orelse], made)
        return False


def _own(found: Any) -> Any:
    """A method of the script's own class, or of a value."""
    return found if isinstance(found, FunctionType) and not _is_of_library(found) else NOTHING


def _made_in(node: ast.AST) -> set[str]:
    """Variables that are given nothing but a constant, a list or a dict that is made there."""
    given: dict[str, bool] = {}
    for one in walk(node):
        for target, value in grammar.all_stores_of(one):
            if isinstance(target, ast.Name) and not isinstance(one, ast.AugAssign):
                is_made = isinstance(value, ast.Constant | ast.List | ast.Dict)
                given[target.id] = given.get(target.id, True) and is_made
    return {name for name, is_made in given.items() if is_made}


def _is_plain_decorator(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return last_name(called) in _CONTEXTS | {"staticmethod"}


def _is_of_library(function: Any) -> bool:
    module = getattr(function, "__module__", None) or ""
    return str(module).partition(".")[0] in _LIBRARIES


def flat(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Without the contexts that stand around some of them: here all is run without gradients."""
    for one in statements:
        if isinstance(one, ast.With) and _is_plain_context(one):
            yield from flat(one.body)
        else:
            yield one


def _is_plain_context(one: ast.With) -> bool:
    return all(
        isinstance(item.context_expr, ast.Call)
        and last_name(item.context_expr.func) in _CONTEXTS
        and item.optional_vars is None
        for item in one.items
    )


def is_of_names(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(map(is_of_names, target.elts))
    return isinstance(target, ast.Name)
