"""What a step works out behind its update, worked out at its gate as well.

    optimizer.step()
    correct = (output.argmax(1) == target).sum()
    return loss.item(), correct.item()

A rank that is lost there takes with it what the lines behind its step go on with: in a variable
(see `foreseen`) it is not yet. But what these lines read is there. So the lines that what is
returned depends on, backwards from the `return`, are run at the gate too, on what the variables
hold: if they do nothing else than to read. What else stands there (`zero_grad()`, a meter) is not
run. What comes out counts only once it has been what the function returned, bit for bit, in several
calls, and for as long as it is.
"""

import ast
import builtins
import copy
import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from trainmover.state.script.code import grammar
from trainmover.state.script.code.changing import root_of
from trainmover.state.script.code.syntax import Function, last_name, walk
from trainmover.state.script.place.swallowing import function_at
from trainmover.state.script.things.held import locals_of

NOTHING = object()
"""It could not be worked out."""
_DEPTH_MAX = 3
_PARTS_MAX = 64
_PLAIN = (
    *(bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device),
    *(FunctionType, BuiltinFunctionType, ModuleType, type),
)
_LIBRARIES = ("torch", "numpy", "math", "statistics")
_CONTEXTS = frozenset({"no_grad", "inference_mode", "enable_grad", "autocast", "record_function"})
_OF_TENSORS = frozenset(
    {"abs", "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "bincount", "bool", "ceil"}
    | {"clamp", "clip", "clone", "contiguous", "count_nonzero", "cpu", "cumsum", "detach", "diff"}
    | {
        "dim",
        "div",
        "double",
        "eq",
        "exp",
        "expand",
        "expand_as",
        "flatten",
        "float",
        "floor",
        "ge",
    }
    | {"gather", "gt", "half", "int", "isfinite", "isinf", "isnan", "le", "log", "log1p", "log10"}
    | {"log2", "log_softmax", "logical_and", "logical_not", "logical_or", "logsumexp", "long", "lt"}
    | {"masked_select", "matmul", "max", "maximum", "mean", "median", "min", "minimum", "mul", "ne"}
    | {"nonzero", "norm", "numel", "permute", "pow", "prod", "quantile", "reciprocal", "reshape"}
    | {"round", "rsqrt", "sigmoid", "sign", "size", "softmax", "sort", "sqrt", "square", "squeeze"}
    | {"std", "sub", "sum", "t", "tanh", "to", "topk", "transpose", "type", "unsqueeze", "var"}
    | {"var_mean", "view", "where", "add", "item", "tolist", "unique", "ge"}
)
"""Methods of tensors that only read, functions of torch that do the same, and of numpy."""
_OF_LIBRARIES = _OF_TENSORS | frozenset(
    {"as_tensor", "asarray", "array", "average", "binary_cross_entropy", "cat", "concatenate"}
    | {"binary_cross_entropy_with_logits", "cosine_similarity", "cross_entropy", "fabs", "fsum"}
    | {"fmean", "huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss", "normalize", "one_hot"}
    | {"relu", "smooth_l1_loss", "stack", "stdev", "tensor", "zeros_like", "ones_like"}
)
_OF_VALUES = frozenset({"get", "keys", "values", "items", "index", "count", "format", "join"})
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


class Ahead:
    """The lines of one function of which it returns something, behind the gate in it.

    names: of variables that they read
    """

    def __init__(self, names: Sequence[str], function: FunctionType) -> None:
        self._names, self._function = names, function

    def work_out(self, frame: FrameType) -> Any:
        """What the function will return, as its gate sees it. NOTHING: these lines cannot be run
        on what is there."""
        held = locals_of(frame)
        try:
            with torch.no_grad():
                return self._function(*(held[name] for name in self._names))
        except Exception:  # noqa: BLE001  the script's own lines may raise any
            return NOTHING


def ahead_of(frame: FrameType) -> Ahead | None:
    """frame: of the function, which has come to its gate. None: these lines do more than to read,
    or are not known."""
    code = frame.f_code
    node = function_at(code.co_filename, (code.co_name, code.co_firstlineno))
    if not isinstance(node, Function) or _is_generator(code):
        return None
    behind, held = _behind(node.body, frame.f_lineno), locals_of(frame)
    lines = None if behind is None else _relied_on(behind)
    if lines is None:
        return None
    read = _read_in(lines)
    at_hand = {**frame.f_globals, **held}
    if not all(_stays(at_hand[name]) for name in read if name in at_hand):
        return None
    names = sorted(read & held.keys())
    reader = _Reader(frame.f_globals, {name: held[name] for name in names})
    if not all(map(reader.only_reads, lines)):
        return None
    return Ahead(names, _compiled(lines, names, code.co_filename, frame.f_globals))


def _stays(value: Any, depth: int = 0) -> bool:
    """Whether it is then what it is now: no parameter, no object that lines between may change, as
    an optimizer's settings are."""
    if isinstance(value, Tensor):
        return not (isinstance(value, nn.Parameter) or (value.is_leaf and value.requires_grad))
    if isinstance(value, dict | tuple | list):
        inside = value.values() if isinstance(value, dict) else value
        small = len(value) <= _PARTS_MAX and depth < _DEPTH_MAX
        return small and all(_stays(one, depth + 1) for one in inside)
    return isinstance(value, _PLAIN) or type(value).__module__ == "numpy"


def _is_generator(code: CodeType) -> bool:
    kinds = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    return bool(code.co_flags & kinds)


def _behind(body: Sequence[ast.stmt], line: int) -> list[ast.stmt] | None:
    """What is run behind that line, to the end of the function. None: it is not known, as in a
    loop, or it goes on with what this line gives."""
    for at, one in enumerate(body):
        if not one.lineno <= line <= (one.end_lineno or one.lineno):
            continue
        rest = [*body[at + 1 :]]
        if isinstance(one, ast.Expr):
            return [one, *rest]
        if not isinstance(one, ast.With | ast.If):
            return None
        blocks = [one.body] if isinstance(one, ast.With) else [one.body, one.orelse]
        inside = next(filter(None, (_behind(block, line) for block in blocks)), None)
        return None if inside is None else [*inside, *rest]
    return None


def _relied_on(behind: Sequence[ast.stmt]) -> list[ast.stmt] | None:
    """The `return`, and before it the stores of what that reads. None: there is more than one way
    to it."""
    flat = [*_flat(behind)]
    if not flat or not isinstance(flat[-1], ast.Return) or flat[-1].value is None:
        return None
    lines: list[ast.stmt] = [copy.deepcopy(flat[-1])]
    needed = _read_in(lines)
    for one in reversed(flat[:-1]):
        if any(isinstance(inner, ast.Return) for inner in walk(one)):
            return None
        stored = _stored_in(one)
        if stored.isdisjoint(needed):
            if _may_change(one, needed):
                return None
            continue
        line = _as_store(one)
        if line is None:
            return None
        needed = (needed - stored) | _read_in([line])
        lines.insert(0, line)
    return lines


def _may_change(one: ast.stmt, names: set[str]) -> bool:
    """Whether it changes in place what one of these variables holds."""
    for inner in walk(one):
        match inner:
            case ast.Call(func=ast.Attribute(value=held, attr=name)) if name.endswith("_"):
                pass
            case ast.Subscript(value=held, ctx=ast.Store() | ast.Del()):
                pass
            case ast.Attribute(value=held, ctx=ast.Store() | ast.Del()):
                pass
            case _:
                continue
        if root_of(held) in names:
            return True
    return False


def _flat(statements: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """Without the contexts that stand around some of them: here all is run without gradients."""
    for one in statements:
        if isinstance(one, ast.With) and _is_plain_context(one):
            yield from _flat(one.body)
        else:
            yield one


def _is_plain_context(one: ast.With) -> bool:
    return all(
        isinstance(item.context_expr, ast.Call)
        and last_name(item.context_expr.func) in _CONTEXTS
        and item.optional_vars is None
        for item in one.items
    )


def _as_store(one: ast.stmt) -> ast.stmt | None:
    """A store to variables, which changes nothing in place. None: it is another statement."""
    match one:
        case ast.Assign(targets=targets) if all(map(_is_of_names, targets)):
            return copy.deepcopy(one)
        case ast.AnnAssign(target=ast.Name(), value=ast.expr()):
            return copy.deepcopy(one)
        case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
            now = ast.BinOp(ast.Name(name, ast.Load()), op, value)
            store = ast.Assign([copy.deepcopy(target)], copy.deepcopy(now))
            return ast.fix_missing_locations(ast.copy_location(store, one))
    return None


def _is_of_names(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(map(_is_of_names, target.elts))
    return isinstance(target, ast.Name)


def _stored_in(node: ast.AST) -> set[str]:
    return {
        one.id for one in walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }


def _read_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that are read in these before they are stored, but for those of comprehensions."""
    found, stored = set[str](), set[str]()
    for node in nodes:
        own = {
            name
            for one in walk(node)
            if isinstance(one, ast.comprehension)
            for name in grammar.names(one.target)
        }
        read = {
            one.id
            for one in walk(node)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
        }
        found |= read - own - stored
        stored |= _stored_in(node)
    return found


def _compiled(
    lines: list[ast.stmt], names: list[str], path: str, known: dict[str, Any]
) -> FunctionType:
    """These lines as a function of the variables that they read."""
    given = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
    made: Any = ast.FunctionDef("behind_gate", given, lines, [], None)
    if "type_params" in made._fields:
        made.type_params = []
    module = ast.fix_missing_locations(ast.Module([made], []))
    whole = compile(module, path, "exec", dont_inherit=True)
    inside = next(one for one in whole.co_consts if isinstance(one, CodeType))
    return FunctionType(inside, known)


class _Reader:
    """Judges whether lines do nothing else than to read.

    known  globals of their function
    held   its variables
    """

    def __init__(self, known: Mapping[str, Any], held: Mapping[str, Any], depth: int = 0) -> None:
        self._known, self._held, self._depth = known, held, depth

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
            return isinstance(call.func, ast.Attribute) and name in _OF_TENSORS | _OF_VALUES
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
                at_hand = {**vars(builtins), **self._known, **self._held}
                return at_hand.get(name, NOTHING)
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
        if code is None or self._depth == _DEPTH_MAX or _is_generator(code):
            return False
        node = function_at(code.co_filename, (code.co_name, code.co_firstlineno))
        if not isinstance(node, Function) or not all(map(_is_plain_decorator, node.decorator_list)):
            return False
        reader = _Reader(inside.__globals__, {}, self._depth + 1)
        return reader.block(node.body, _made_in(node))

    def block(self, body: Iterable[ast.stmt], made: set[str]) -> bool:
        """Statements of a function. made: variables that hold what it has made itself"""
        return all(self._is_harmless(one, made) for one in _flat(body))

    def _is_harmless(self, one: ast.stmt, made: set[str]) -> bool:
        match one:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return True
            case ast.Assign(targets=targets):
                return all(map(_is_of_names, targets)) and self.only_reads(one)
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
                reads = _is_of_names(target) and self.only_reads(values)
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
