# SPDX-License-Identifier: Apache-2.0
"""Where a script asks how much lies in a container, or whether there is a time, and does more with
the answer than a mean or a line of text: a list of times then counts the steps, and a time that is
None until something happened says that it did.

    sum(times) / len(times)                        a mean: nothing is counted
    if len(times) > 100: times.pop(0)              nothing else is decided
    if len(times) % 50 == 0: print(times[-1])      something is shown
    rate = 0.1 if len(times) > 10 else 1.0         it counts
    if since is not None: print(time.time() - since)    nothing else is decided
    if since is None: since = time.time()          a time begins
    rate = 1.0 if since is None else 0.1           that there is one counts
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from trainmover.state.script.code import grammar
from trainmover.state.script.code.syntax import Function, called_name, children, last_name, walk
from trainmover.state.script.code.times.whether import (
    as_truth,
    asks_whether,
    begins_with,
    gone_through,
    is_answer,
)

_SHOWS = frozenset(
    {"print", "debug", "info", "warning", "log", "write", "add_scalar", "add_scalars", "log_metric"}
    | {"set_postfix", "set_description", "set_postfix_str", "set_description_str", "echo", "flush"}
    | {"writerow", "writerows", "add_text", "add_histogram"}
)
_ERRORS = frozenset({"RuntimeError", "ValueError", "TypeError", "AssertionError"})
_DIVISIONS = (ast.Div, ast.FloorDiv)
_DEPTH_MAX = 4
Tells = Callable[[ast.expr], bool]
"""Whether a value is the time, or made out of it."""


class Asked(NamedTuple):
    """Paths, as `whether.path_of` has them, of what counts in a function or file.

    sizes    containers whose size does
    whether  what counts by being there, or by being true
    """

    sizes: set[str]
    whether: set[str]


def counted(body: Sequence[ast.stmt], tells: Tells, functions: dict[str, Function]) -> Asked:
    """tells: in this scope
    functions: of the file, by name: what is called where a size decides
    """
    reader = _Reader(body, tells, functions)
    return Asked(reader.sizes, reader.whether)


class _Reader:
    def __init__(
        self, body: Sequence[ast.stmt], tells: Tells, functions: dict[str, Function]
    ) -> None:
        self.sizes, self.whether = set[str](), set[str]()
        self._body = body
        self._tells = tells
        self._functions = functions
        self._sizes = dict(_named_sizes(body))
        for statement in _all_in(body):
            self._look(statement)

    def _look(self, statement: ast.stmt) -> None:
        match statement:
            case ast.If(test=decides) | ast.While(test=decides) | ast.Match(subject=decides):
                if not self._is_idle(_blocks_of(statement)):
                    self._ask(decides)
                    self.whether |= {*as_truth(decides)}
            case ast.For(iter=decides):
                if not self._is_idle(_blocks_of(statement)):
                    self._ask(decides)
                    self.sizes |= {*gone_through(decides)}
            case ast.Assign(targets=[ast.Name()], value=ast.Call() as value) if size_of(value):
                pass  # Another name for it.
            case ast.Expr(value=ast.Call() as call) if called_name(call) in _SHOWS:
                pass
            case ast.Assert():
                pass  # All ends if it is not so.
            case _:
                self._ask(statement)

    def _ask(self, node: ast.AST) -> None:
        """What is asked of containers and times in it, for more than a mean or a text."""
        if path := self._size(node):
            self.sizes.add(path)
            return
        if path := asks_whether(node):
            self.whether.add(path)
        for child in children(node):
            if isinstance(child, ast.stmt | Function | ast.JoinedStr):
                continue
            match node:
                case ast.BinOp(op=op, left=over, right=under) if isinstance(op, _DIVISIONS):
                    if child is under and self._tells(over):
                        continue
                case ast.IfExp(test=test, body=one, orelse=other) if child is test:
                    both = self._is_told(one) and self._is_told(other)
                    if both and (self._tells(one) or self._tells(other)):
                        continue
                    self.whether |= {*as_truth(test)}
                case ast.Subscript(value=held, slice=place) if child is place:
                    if self._tells(held):
                        continue
                case ast.Slice():
                    continue  # Part of one of the above, or of what is no list of times.
            self._ask(child)
        self._chosen(node)

    def _chosen(self, node: ast.AST) -> None:
        """What chooses in an expression: `since and 0.5 or 1.0`, not `since or time.time()`; and of
        what a comprehension goes through how much there is, if it makes no times of it."""
        match node:
            case ast.BoolOp(values=values):
                if not all(self._tells(one) or begins_with(one) for one in values):
                    self.whether |= {*as_truth(node)}
            case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.GeneratorExp(elt=part):
                for one in node.generators:
                    if not self._tells_in(part, one):
                        self.sizes |= {*gone_through(one.iter)}
                    for test in one.ifs:
                        self.whether |= {*as_truth(test)}

    def _tells_in(self, part: ast.expr, made: ast.comprehension) -> bool:
        """Whether what is made of each is a time, or which one it is."""
        names = grammar.names(made.target)
        reads = any(isinstance(one, ast.Name) and one.id in names for one in walk(part))
        return reads and not is_answer(part)

    def _is_told(self, value: ast.expr) -> bool:
        return isinstance(value, ast.Constant | ast.JoinedStr) or self._tells(value)

    def _is_idle(self, statements: Sequence[ast.stmt], depth: int = 0) -> bool:
        """Whether these only show something, or work with the time."""
        return all(self._does_nothing(one, depth) for one in statements)

    def _size(self, node: ast.AST) -> str:
        """The path of what a call or a name says the size of."""
        if isinstance(node, ast.Name):
            return self._sizes.get(node.id, "") if isinstance(node.ctx, ast.Load) else ""
        return size_of(node) if isinstance(node, ast.Call) else ""

    def _does_nothing(self, statement: ast.stmt, depth: int) -> bool:
        match statement:
            case ast.Pass() | ast.Global() | ast.Nonlocal() | ast.Assert():
                return True
            case ast.Raise(exc=error) if error is not None:
                return (called_name(error) or last_name(error)) in _ERRORS
            case ast.If() | ast.For() | ast.While() | ast.With():
                return self._is_idle(_blocks_of(statement), depth)
            case ast.Expr(value=ast.Constant()):
                return True
            case ast.Expr(value=ast.Call() as call):
                return self._shows(call, depth)
            case ast.Delete(targets=targets):
                return all(self._tells_root(one) for one in targets)
            case ast.Assign(targets=targets, value=value):
                stored = all(map(self._tells_root, targets))
                local = all(isinstance(one, ast.Name) for one in targets)
                is_time = isinstance(value, ast.JoinedStr) or self._tells(value)
                return stored or (local and is_time)
            case ast.AugAssign(target=target):
                return self._tells_root(target)
            case ast.Return(value=value):
                is_told = value is None or self._is_told(value)
                return is_told and (depth > 0 or self._only_tells())
        return False

    def _only_tells(self) -> bool:
        """Whether all of the function does nothing else, so that it does not matter where it ends:
        it is how long something will take."""
        values = [one.value for one in _all_in(self._body) if isinstance(one, ast.Return)]
        given = [one for one in values if one is not None and grammar.varies(one)]
        is_answer = any(isinstance(one, ast.Constant) and one.value is not None for one in values)
        return (bool(given) or not is_answer) and self._is_idle(self._body, depth=1)

    def _shows(self, call: ast.Call, depth: int) -> bool:
        name = called_name(call)
        if name in _SHOWS:
            return True
        if isinstance(call.func, ast.Attribute) and self._tells_root(call.func.value):
            return True
        function = self._functions.get(name)
        is_known = function is not None and depth < _DEPTH_MAX
        return is_known and self._is_idle(function.body, depth + 1)  # type: ignore[union-attr]

    def _tells_root(self, target: ast.expr) -> bool:
        """Whether what is stored to, or changed, holds the time."""
        held = target
        while isinstance(held, ast.Subscript):
            held = held.value
        return self._tells(held)


def _named_sizes(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement in _all_in(body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as value):
                if path := size_of(value):
                    yield name, path


def size_of(call: ast.Call) -> str:
    """The path of what a call says the size of; "" of any other call."""
    match call:
        case ast.Call(func=ast.Name(id="len"), args=[held]):
            return next(gone_through(held), "")
        case ast.Call(func=ast.Attribute(value=held, attr="__len__" | "count")):
            return grammar.path(held)
    return ""


def _all_in(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Of the same scope, in whatever blocks."""
    for one in body:
        if not isinstance(one, Function | ast.ClassDef):
            yield one
            yield from _all_in(_blocks_of(one))


def _blocks_of(statement: ast.stmt) -> list[ast.stmt]:
    """Also those of handlers and cases, which are no statements themselves."""
    found: list[ast.stmt] = []
    for child in children(statement):
        if isinstance(child, ast.stmt):
            found.append(child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            found += child.body
    return found
