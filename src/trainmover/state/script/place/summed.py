# SPDX-License-Identifier: Apache-2.0
"""Variables of a frame that sum up what steps give: `total += loss.item()`, `n += len(x)`.

They are another number on each rank, and at each fetch. A run in the sandbox, which stands at its
own few steps, can have them all the same as the rank has: the rank's record says what they were at
its last fetch, and the lines that make them since are run again, with what its step gave. That
holds for what is made of nothing else:

    what a step gives                      is kept with the record
    batches of the loop that fetches       are drawn again
    constants, and names that no line in the loop stores to
    other such variables
    plain arithmetic on all of these, also in the condition under which a line is run

Where a line reads anything else (a gradient, a file, an attribute, what another function gives),
nobody knows whether it comes to the same here, and the variable is compared like any other.
"""

import ast
import builtins
import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any

import torch

from trainmover.state.script.code import grammar
from trainmover.state.script.code.syntax import Function, children, walk
from trainmover.state.script.place.swallowing import function_at
from trainmover.state.script.things.held import held_by

_OURS = __name__.partition(".")[0]
_PURE = (float, int, bool, min, max, abs, len, round, sum, range, enumerate, zip, pow, divmod)
_METHODS = frozenset(
    {"item", "detach", "cpu", "clone", "float", "double", "int", "long", "size", "numel", "dim"}
    | {"mean", "sum", "norm", "abs", "max", "min", "std", "var", "sqrt", "square", "exp", "log"}
    | {"argmax", "argmin", "eq", "view_as", "is_integer", "get", "values", "items", "keys"}
)
"""Of tensors, numbers and dicts: they change nothing, and give what follows from what they have."""
_OF_JOB = frozenset({"steps", "rank", "world_size"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BINDS_NOTHING = (ast.Expr, ast.Pass, ast.Return, ast.Raise, ast.Assert, ast.Continue, ast.Break)
_NEVER = ast.Constant(NotImplemented)
Tests = tuple[ast.expr, ...]


@dataclass(frozen=True)
class _Store:
    """One, in the loop. under: what decides whether it is made."""

    name: str
    value: ast.expr
    under: Tests


def summed(
    frame: FrameType, values: Mapping[str, Any], given: Set[str], elsewhere: Set[str]
) -> Set[str]:
    """Names of locals, stored to in the loop around the fetch, that are made of nothing but what is
    known.

    given: targets of the loop that fetches. elsewhere: names that others store to too
    """
    code = frame.f_code
    node = function_at(code.co_filename, (code.co_name, code.co_firstlineno))
    loop = None if node is None else _loop_at(node, frame.f_lineno)
    if loop is None:
        return frozenset()
    return _Reader(frame, values, given, elsewhere).known_in(loop)


def _loop_at(node: ast.AST, line: int) -> ast.stmt | None:
    """The outermost loop of this function, or of the top of its file, around a line."""
    for one in children(node):
        if isinstance(one, ast.stmt) and not _is_inside(one) and _is_around(one, line):
            return one if isinstance(one, _LOOPS) else _loop_at(one, line)
    return None


def _is_inside(statement: ast.stmt) -> bool:
    return isinstance(statement, Function | ast.ClassDef)


def _is_around(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


class _Reader:
    """Of one loop."""

    def __init__(
        self, frame: FrameType, values: Mapping[str, Any], given: Set[str], elsewhere: Set[str]
    ) -> None:
        self._values, self._top, self._line = values, frame.f_globals, frame.f_lineno
        self._given, self._elsewhere = given, elsewhere
        self._known: Set[str] = frozenset()
        self._stored: Set[str] = frozenset()

    def known_in(self, loop: ast.stmt) -> Set[str]:
        """All are, until one is made of another that is not."""
        stores = [*self._in_statement(loop, ())]
        jumps = [*self._cut_short([loop], (), is_around=True)]
        self._stored = {one.name for one in stores}
        self._known, before = (self._stored | self._given) - self._elsewhere, None
        while self._known != before:
            before = self._known
            if not all(map(self._are_known, jumps)):
                return frozenset()
            unknown = {one.name for one in stores if not self._are_known((one.value, *one.under))}
            self._known = self._known - unknown
        return self._known - self._given

    # --- what is stored ---------------------------------------------------------------------------

    def _in_statement(self, statement: ast.stmt, under: Tests) -> Iterator[_Store]:
        for name, value in _bound_by(statement):
            if not (name in self._given and self._goes_on(statement)):
                yield _Store(name, value, under)
        for one in _expressions_of(statement):
            for node in walk(one):
                if isinstance(node, ast.NamedExpr):
                    yield _Store(node.target.id, _NEVER, under)
                elif changed := grammar.changed_by_name(node):
                    yield _Store(changed, _NEVER, under)
        tests, blocks = self._decided_by(statement)
        for block in blocks:
            for inner in block:
                yield from self._in_statement(inner, (*under, *tests))

    def _goes_on(self, statement: ast.stmt) -> bool:
        """Whether it is a loop around the fetch: how far that is, is the place of the run."""
        return isinstance(statement, _LOOPS) and _is_around(statement, self._line)

    def _decided_by(self, statement: ast.stmt) -> tuple[Tests, list[list[ast.stmt]]]:
        """Whether, and how often, which statements are run."""
        match statement:
            case ast.If(test=test, body=body, orelse=rest):
                return (test,), [body, rest]
            case ast.While(test=how, body=body, orelse=rest):
                return () if self._goes_on(statement) else (how,), [body, rest]
            case ast.For(iter=how, body=body, orelse=rest):
                return () if self._goes_on(statement) else (how,), [body, rest]
            case ast.With(items=items, body=body):
                quiet = all(self._is_torchs(one.context_expr) for one in items)
                return () if quiet else (_NEVER,), [body]
            case ast.Try(body=body, handlers=handlers, orelse=rest, finalbody=last):
                return (_NEVER,), [body, *(one.body for one in handlers), rest, last]
            case ast.Match(cases=cases):
                return (_NEVER,), [one.body for one in cases]
        return (), []

    def _cut_short(
        self, block: list[ast.stmt], under: Tests, *, is_around: bool
    ) -> Iterator[Tests]:
        """What decides on jumps in a round that lead on in it, or to the next one. Who leaves the
        loops around the fetch is elsewhere, which shows.

        is_around: the innermost loop around this block is around the fetch
        """
        for statement in block:
            if isinstance(statement, ast.Continue):
                yield under
            if isinstance(statement, ast.Break) and not is_around:
                yield under
            tests, blocks = self._decided_by(statement)
            around = self._goes_on(statement) if isinstance(statement, _LOOPS) else is_around
            for inner in blocks:
                yield from self._cut_short(inner, (*under, *tests), is_around=around)

    def _is_torchs(self, call: ast.expr) -> bool:
        """As `torch.no_grad()`: no manager that ends an exception."""
        root = call
        while isinstance(root, ast.Call | ast.Attribute):
            root = root.func if isinstance(root, ast.Call) else root.value
        return isinstance(root, ast.Name) and self._value(root.id) is torch

    # --- what is known ----------------------------------------------------------------------------

    def _are_known(self, nodes: Iterable[ast.AST]) -> bool:
        return all(map(self._is_known, nodes))

    def _is_known(self, node: ast.AST) -> bool:
        match node:
            case ast.Constant(value=value):
                return value is not NotImplemented
            case ast.Name(id=name):
                return name in self._known or self._is_fixed(name)
            case ast.Call(func=function) if self._is_step(function):
                return True
            case ast.Call(func=function, args=args, keywords=[]):
                return self._is_pure(function) and self._are_known(args)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr in _OF_JOB:
                return _is_ours(type(self._value(name)).__module__)
            case ast.Attribute(value=value, attr="shape"):
                return self._is_known(value)
            case ast.Subscript(value=value, slice=part):
                return self._are_known((value, part))
            case ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.Compare() | ast.IfExp():
                return self._are_known(one for one in children(node) if isinstance(one, ast.expr))
            case ast.Tuple(elts=parts):
                return self._are_known(parts)
        return False

    def _is_fixed(self, name: str) -> bool:
        """Whether it is a number or a text to which nothing stores."""
        changes = name in self._stored or name in self._elsewhere
        return not changes and type(self._value(name)) in (int, float, bool, str)

    def _is_pure(self, function: ast.expr) -> bool:
        match function:
            case ast.Name(id=name):
                value = self._value(name)
                return name not in self._stored and any(value is one for one in _PURE)
            case ast.Attribute(value=ast.Name(id=name)) if self._value(name) is math:
                return True
            case ast.Attribute(value=value, attr=attr):
                return attr in _METHODS and self._is_known(value)
        return False

    def _is_step(self, function: ast.expr) -> bool:
        match function:
            case ast.Name(id=name):
                return name not in self._stored and _is_marked(self._value(name))
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name not in self._stored:
                owner = self._value(name)
                kinds = [held_by(owner), *map(vars, type(owner).__mro__)]
                return _is_marked(next((one[attr] for one in kinds if attr in one), None))
        return False

    def _value(self, name: str) -> object:
        for names in (self._values, self._top, vars(builtins)):
            if name in names:
                return names[name]
        return None


def _bound_by(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Names that it stores to, but for those in its blocks, each with what they are made of."""
    match statement:
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            for target, value in grammar.stores_of(statement):
                yield from _stored(target, value, adds=isinstance(statement, ast.AugAssign))
        case ast.For(target=target, iter=how):
            yield from ((name, how) for name in grammar.names(target))
        case _ if not isinstance(statement, _BINDS_NOTHING):
            yield from (
                (name, _NEVER) for part in _own_parts(statement) for name in _named_in(part)
            )


def _stored(target: ast.expr, value: ast.expr, *, adds: bool) -> Iterator[tuple[str, ast.expr]]:
    match target:
        case ast.Name(id=name):
            yield name, ast.Tuple([ast.Name(name), value]) if adds else value
        case ast.Subscript():
            if isinstance(container := grammar.root(target), ast.Name):
                yield container.id, _NEVER


def _own_parts(statement: ast.stmt) -> list[ast.AST]:
    """Without the blocks that are looked at on their own."""
    if isinstance(statement, ast.If | ast.While | ast.With | ast.Try | ast.Match):
        inside = [one for one in children(statement) if not isinstance(one, ast.stmt)]
        return [part for one in inside for part in (one, *children(one))]
    return [statement]


def _named_in(part: ast.AST) -> Iterator[str]:
    """All names that might be bound: by a `with`, a `try`, an import, a `del`, a `def`."""
    for node in walk(part):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case (
                ast.ClassDef(name=name)
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name


def _expressions_of(statement: ast.stmt) -> list[ast.AST]:
    """Those of its own line; the blocks in it have their own."""
    return [one for one in children(statement) if not isinstance(one, ast.stmt)]


def _is_marked(value: object) -> bool:
    """With @job.step: whoever takes a rank knows what it gave."""
    if not isinstance(value, FunctionType) or "__wrapped__" not in held_by(value):
        return False
    return _is_ours(value.__globals__.get("__name__", ""))


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == _OURS
