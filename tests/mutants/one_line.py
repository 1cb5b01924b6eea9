"""All changes of one line that a module can have, in the order of its source.

A *change* is found by walking the module's syntax tree, and is made in another copy of that tree:

    negate        a condition is its opposite            boundary    < becomes <=
    never         a guard never holds, a filter always   operand     of `a and b` one is left
    logic         `and` becomes `or`                     plain       `not a` becomes `a`
    number        n becomes n + 1, True becomes False    end         the first becomes the last
    drop          a statement is left out                case        of a `match` is left out
    forget        left out is a field of `replace(...)`, one of several values, an effect, a summand
    nothing       what is returned is left as it was: `return replace(job, ...)` is `return job`

What people read is left alone (texts, and which of two texts is chosen), and so are assertions,
annotations, constants of a module, and numbers above a thousand, which are durations.
"""

import ast
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

LARGE = 1000
OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
OTHER_CALL = {"min": "max", "max": "min", "any": "all", "all": "any"}

Put = Callable[[ast.AST], None]
"""Puts another node where the looked at one stands."""


@dataclass(frozen=True)
class Change:
    """number: which of the module's, from 0. before, after: what stands in that line."""

    module: str
    number: int
    line: int
    kind: str
    before: str
    after: str

    @property
    def id(self) -> str:
        return f"{self.module}:{self.number}"

    def __str__(self) -> str:
        return f"{self.module} line {self.line}, {self.kind}: `{self.before}` is `{self.after}`"


@dataclass(frozen=True)
class _Site:
    """line: of the statement. change: makes it in the tree."""

    statement: ast.AST
    kind: str
    change: Callable[[], None]


def count(source: str) -> int:
    """How many there are; their numbers are below it."""
    return len(_sites(ast.parse(source)))


def kinds_and_lines(source: str) -> list[tuple[str, int]]:
    """Return the kind of each change, and the line of its statement."""
    return [(site.kind, _line(site.statement)) for site in _sites(ast.parse(source))]


def change_of(module: str, source: str, number: int) -> Change:
    """What it is, for people."""
    site = _sites(ast.parse(source))[number]
    before = _words(site.statement)
    site.change()
    apart = _apart(before, _words(site.statement))
    return Change(module, number, _line(site.statement), site.kind, *apart)


def changed(source: str, number: int) -> ast.Module:
    """The module with that change."""
    tree = ast.parse(source)
    _sites(tree)[number].change()
    return ast.fix_missing_locations(tree)


def _line(statement: ast.AST) -> int:
    at = statement.pattern if isinstance(statement, ast.match_case) else statement
    return int(getattr(at, "lineno", 0))


def _words(statement: ast.AST) -> str:
    """The head of it: a compound one's body is of no interest."""
    shown = copy(statement)
    for field in ("body", "orelse", "cases", "handlers"):
        if isinstance(getattr(shown, field, None), list):
            setattr(shown, field, [])
    return " ".join(ast.unparse(shown).split())


def _apart(before: str, after: str, around: int = 60) -> tuple[str, str]:
    """Both, without what is far from where they differ."""
    if before == after:
        return before[: 2 * around], "nothing"
    start = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    first = max(0, start - around)
    return before[first : start + around], after[first : start + around]


# --- where ----------------------------------------------------------------------------------------


def _sites(tree: ast.Module) -> list[_Site]:
    return list(_in_body(tree, frozenset()))


def _in_body(owner: ast.AST, bound: frozenset[str]) -> Iterator[_Site]:
    """Of all statements in a block; bound: names that have a value before it."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        block = getattr(owner, field, None)
        if not isinstance(block, list):
            continue
        for index, statement in enumerate(block):
            yield from _of_statement(statement, block, index, owner, bound)
            bound |= _names_in(statement)


def _of_statement(
    statement: ast.AST, block: list[ast.AST], index: int, owner: ast.AST, bound: frozenset[str]
) -> Iterator[_Site]:
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Assert) or _is_text(statement):
        return
    if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
        return
    if isinstance(statement, ast.FunctionDef):
        arguments = {one.arg for one in ast.walk(statement.args) if isinstance(one, ast.arg)}
        yield from _in_body(statement, frozenset(arguments))
        return
    if isinstance(statement, ast.ClassDef):
        for inner in statement.body:
            if isinstance(inner, ast.FunctionDef | ast.ClassDef):
                yield from _of_statement(inner, list(statement.body), 0, statement, bound)
        return
    if isinstance(owner, ast.Module):
        return  # Constants: how long, how many.
    for kind, change in _of_whole(statement, block, index, bound):
        yield _Site(statement, kind, change)
    for kind, change in _of_parts(statement):
        yield _Site(statement, kind, change)
    if isinstance(statement, ast.match_case):
        bound |= _names_in(statement.pattern)
    yield from _in_body(statement, bound)


def _is_text(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _names_in(statement: ast.AST) -> frozenset[str]:
    stored = {
        one.id
        for one in ast.walk(statement)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    captured = {
        one.name for one in ast.walk(statement) if isinstance(one, ast.MatchAs) and one.name
    }
    return frozenset(stored | captured)


# --- what: whole statements -----------------------------------------------------------------------

Found = Iterator[tuple[str, Callable[[], None]]]


def _of_whole(statement: ast.AST, block: list[ast.AST], index: int, bound: frozenset[str]) -> Found:
    def leave_out() -> None:
        block[index] = ast.Pass(lineno=getattr(statement, "lineno", 0), col_offset=0)

    match statement:
        case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Raise():
            yield "drop", leave_out
        case ast.Break() | ast.Continue():
            yield "drop", leave_out
        case ast.Assign(targets=[target]) if _has_value(target, bound):
            yield "drop", leave_out
        case ast.match_case(guard=None, pattern=pattern) if not _is_rest(pattern):
            yield "case", lambda: setattr(statement, "guard", ast.Constant(value=False))
        case ast.Return(value=ast.Call(func=ast.Name(id="replace"), args=[first, *_])):
            yield "nothing", lambda: setattr(statement, "value", first)


def _has_value(target: ast.expr, bound: frozenset[str]) -> bool:
    """Whether it has one without this statement."""
    match target:
        case ast.Name(id=name):
            return name in bound
        case ast.Tuple(elts=parts):
            return all(_has_value(part, bound) for part in parts)
        case _:
            return True


def _is_rest(pattern: ast.pattern) -> bool:
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None


# --- what: expressions ----------------------------------------------------------------------------


def _of_parts(statement: ast.AST) -> Found:
    """Of the expressions of a statement, not of the statements in it."""
    for field, value in ast.iter_fields(statement):
        if field in ("annotation", "body", "orelse", "cases", "handlers", "finalbody", "pattern"):
            continue
        for one, put in _places(statement, field, value):
            if field in ("test", "guard"):
                yield from _of_condition(one, put)
            if isinstance(one, ast.expr):
                yield from _of_expression(one, put)


def _places(owner: ast.AST, field: str, value: object) -> Iterator[tuple[ast.AST, Put]]:
    if isinstance(value, ast.AST):
        yield value, lambda new: setattr(owner, field, new)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            if isinstance(one, ast.AST):
                yield one, lambda new, i=index: value.__setitem__(i, new)  # type: ignore[misc]


def _of_condition(test: ast.AST, put: Put) -> Found:
    assert isinstance(test, ast.expr)
    if not _has_opposite(test):
        yield "negate", lambda: put(ast.UnaryOp(op=ast.Not(), operand=test))
    yield "never", lambda: put(ast.Constant(value=False))


def _has_opposite(test: ast.expr) -> bool:
    """Whether its own change makes it that."""
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _of_expression(one: ast.expr, put: Put) -> Found:
    if isinstance(one, ast.JoinedStr) or _says(one):
        return
    yield from _of_one(one, put)
    for field, value in ast.iter_fields(one):
        for inner, put_inner in _places(one, field, value):
            if isinstance(inner, ast.comprehension):
                yield from _of_comprehension(inner)
            elif isinstance(inner, ast.keyword):
                yield from _of_expression(inner.value, _putter(inner))
            elif isinstance(inner, ast.expr):
                yield from _of_expression(inner, put_inner)


def _says(one: ast.expr) -> bool:
    """Whether it chooses between texts."""
    return isinstance(one, ast.IfExp) and _is_prose(one.body) and _is_prose(one.orelse)


def _is_prose(one: ast.expr) -> bool:
    match one:
        case ast.JoinedStr() | ast.Constant(value=str()):
            return True
        case ast.BinOp(left=left, right=right):
            return _is_prose(left) or _is_prose(right)
        case ast.IfExp():
            return _says(one)
        case _:
            return False


def _putter(keyword: ast.keyword) -> Put:
    return lambda new: setattr(keyword, "value", new)


def _of_comprehension(its: ast.comprehension) -> Found:
    for index, test in enumerate(its.ifs):
        put = lambda new, i=index: its.ifs.__setitem__(i, new)  # noqa: E731
        if not _has_opposite(test):
            yield "negate", lambda t=test, p=put: p(ast.UnaryOp(op=ast.Not(), operand=t))  # type: ignore[misc]
        yield "never", lambda p=put: p(ast.Constant(value=True))  # type: ignore[misc]
        yield from _of_expression(test, put)
    yield from _of_expression(its.iter, lambda new: setattr(its, "iter", new))


def _of_one(one: ast.expr, put: Put) -> Found:
    match one:
        case ast.IfExp(test=test):
            yield from _of_condition(test, lambda new: setattr(one, "test", new))
        case ast.Compare(ops=ops):
            yield from _of_comparison(ops)
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "logic", lambda: setattr(one, "op", other)
            for value in values:
                left = [other for other in values if other is not value]
                one_left = left[0] if len(left) == 1 else ast.BoolOp(op=op, values=left)
                yield "operand", lambda new=one_left: put(new)  # type: ignore[misc]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "plain", lambda: put(operand)
        case ast.Constant(value=bool(value)):
            yield "number", lambda: setattr(one, "value", not value)
        case ast.Constant(value=int(value)) if value < LARGE:
            yield "number", lambda: setattr(one, "value", value + 1)
        case ast.BinOp(left=left, op=op, right=right) if not _is_prose(one):
            yield from _of_sum(one, left, op, right, put)
        case ast.Call(func=ast.Name(id=name)) if name in OTHER_CALL:
            yield "end", lambda: setattr(one.func, "id", OTHER_CALL[name])
        case ast.Call(func=ast.Name(id="replace"), keywords=keywords):
            yield from _each_left_out(keywords, "forget", least=1)
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            yield from _of_several(one, elements)
        case ast.Dict(keys=keys, values=values):
            for index in range(len(keys)):
                yield "forget", partial(_pop, (keys, values), index)
        case ast.Subscript(slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))):
            yield "end", lambda: setattr(one, "slice", ast.Constant(value=0))


def _pop(lists: tuple[list[Any], ...], index: int) -> None:
    for one in lists:
        del one[index]


def _of_comparison(ops: list[ast.cmpop]) -> Found:
    for index, op in enumerate(ops):
        for kind, table in (("negate", OPPOSITE), ("boundary", BOUNDARY)):
            if type(op) in table:
                other = table[type(op)]()
                yield kind, lambda i=index, o=other: ops.__setitem__(i, o)  # type: ignore[misc]


def _each_left_out(values: list[ast.expr] | list[ast.keyword], kind: str, *, least: int) -> Found:
    for index in range(len(values) if len(values) >= least else 0):
        yield kind, partial(_pop, (values,), index)


def _of_sum(one: ast.BinOp, left: ast.expr, op: ast.operator, right: ast.expr, put: Put) -> Found:
    if isinstance(op, ast.Add | ast.Sub) and isinstance(right, ast.Constant):
        other = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
        yield "number", lambda: setattr(one, "op", other)
    elif isinstance(op, ast.Add | ast.Sub | ast.BitOr | ast.BitAnd):
        yield "forget", lambda: put(left)
        if not isinstance(op, ast.Sub):
            yield "forget", lambda: put(right)


def _of_several(one: ast.Tuple | ast.List | ast.Set, elements: list[ast.expr]) -> Found:
    """Where one may be left out: of what is collected, and of a decision's effects."""
    if isinstance(one.ctx if not isinstance(one, ast.Set) else ast.Load(), ast.Store):
        return
    if isinstance(one, ast.Set) or any(isinstance(part, ast.Starred) for part in elements):
        yield from _each_left_out(elements, "forget", least=2 if isinstance(one, ast.Set) else 1)
    elif isinstance(one, ast.Tuple) and len(elements) == 2:
        effects = elements[1]
        if isinstance(effects, ast.Tuple):
            yield from _each_left_out(effects.elts, "forget", least=1)
