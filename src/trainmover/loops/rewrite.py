# SPDX-License-Identifier: Apache-2.0
"""Rewriting of a module's loops, by syntax tree: source in, code out. Line numbers stay.

    for T in IT: BODY               try:
                                        for T in (_tm_1 := __tm__.iterate(IT)):
                                            try: BODY
                                            except __tm__.Retry:
                                                if not _tm_1.again(): raise
                                    finally: _tm_1 = None; del _tm_1

    while TEST: BODY                the same with `for _tm_2 in __tm__.repeat():`, and in the
                                    inner try `if not (TEST): break` first; with an `else`,
                                    `_tm_2.end(); continue` instead of `break`

    yield from IT                   yield from (_tm_3 := __tm__.delegate(IT))
    (E for T in IT)                 (E for T in __tm__.iterate(IT))
    [E for T in IT]                 (_tm_4 := __tm__.Collector(IT)).take(
                                        [_tm_4.append(E) for T in _tm_4])
    enumerate(IT)                   __tm__.twin(enumerate)(IT); so zip and map

Without repeats, in a live run, the inner try is `except __tm__.ends_turn(): if not
__tm__.goes_on(LINE): raise`, so that a rank can go back in the loop where it stands; and the outer
one ends with `__tm__.left(LINE)`.

Nothing is analysed, and only the last line looks at names; what they mean is decided as it runs. A
`try` costs nothing per turn. The outer one lets go of the iterator where a plain loop does: at
`break`, `return` and exceptions too, so that generators are closed in the same order. Statements
with a `yield from` or a list comprehension have such an outer `try` as well. A module has these
variables from its first line to its end, and they are only cleared.

Left alone: loops of class bodies, everything asynchronous, comprehensions of sets and dicts, those
of lists that call nothing or that stand in another comprehension, inner iterators of
comprehensions, annotations, and `while` whose test is a false constant.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any, NamedTuple, TypeVar

from trainmover.loops.iterators import NAMES

VERSION = 4
"""Number of this way to rewrite: code that was kept by another version is not used."""

PREFIX = "_tm_"
"""First letters of the variables that hold loops."""


FUNCTION, CLASS, COMPREHENSION = "function", "class", "comprehension"
_MODULE = "<module>"


class LoopSite(NamedTuple):
    """Place of a loop in a module: lines from its header to the end of its body."""

    function: str
    line: int
    last_line: int
    kind: str
    variable: str


class Rewritten(NamedTuple):
    """Code of a module, and its loops. `reason` says why the code is the plain one, or why none."""

    code: CodeType | None
    sites: tuple[LoopSite, ...] = ()
    reason: str = ""


def rewrite(source: bytes, path: str, *, repeats: bool = True) -> Rewritten:
    """Return the code of a module with its loops rewritten, or its plain code with a reason.

    repeats  a turn can be repeated; False: a loop can go on where an exception of ours has left its
             body
    """
    rewriter = _Rewriter(repeats=repeats)
    try:
        tree = ast.parse(source, path)
        new = rewriter.visit_module(tree)
        if not rewriter.changes:
            return Rewritten(_compile(tree, path))
        return Rewritten(_compile(new, path), tuple(rewriter.sites))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = f"{type(error).__name__}: {error}"
    try:
        return Rewritten(_compile(source, path), (), reason)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Rewritten(None, (), reason)


def _compile(source: bytes | ast.Module, path: str) -> CodeType:
    code: CodeType = compile(source, path, "exec", dont_inherit=True)
    return code


Node = TypeVar("Node", bound=ast.AST)


class _Rewriter(ast.NodeTransformer):
    """Changes a tree in place. `changes` counts what was rewritten, with or without a site."""

    def __init__(self, *, repeats: bool) -> None:
        self.sites: list[LoopSite] = []
        self._repeats = repeats
        self.changes = 0
        self._scope = FUNCTION
        self._function = _MODULE
        self._prefix = ""
        self._loose: list[str] = []
        self._kept: set[str] = set()

    def visit(self, node: ast.AST) -> Any:
        """Visit a node. Unbind variables that the expressions of a statement bind, after it."""
        if not isinstance(node, ast.stmt):
            return super().visit(node)
        outside, self._loose = self._loose, []
        new = super().visit(node)
        if self._loose:
            new = _release(self._loose, new, self._kept)
        self._loose = outside
        return new

    def visit_module(self, tree: ast.Module) -> ast.Module:
        self._block(tree.body)
        if self.changes:
            start = _end_of_prologue(tree.body)
            where = tree.body[min(start, len(tree.body) - 1)]
            load: list[ast.stmt] = [ast.Import([ast.alias("trainmover.loops", "__tm__")])]
            if names := [one.variable for one in self.sites if one.function == _MODULE]:
                load.append(_clear(names))
            tree.body[start:start] = [_at(one, where) for one in load]
        return tree

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        node.args = self.visit(node.args)
        with self._in(FUNCTION, node.name, ".<locals>."):
            self._block(node.body)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        with self._in(CLASS, node.name, "."):
            self._block(node.body)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        node.args = self.visit(node.args)
        # CPython forbids walruses in a lambda that stands in the iterable of a comprehension.
        scope = COMPREHENSION if self._scope == COMPREHENSION else FUNCTION
        outside = self._loose
        self._loose = []  # Of a frame that ends with this expression.
        with self._in(scope, "<lambda>", ".<locals>."):
            node.body = self.visit(node.body)
        self._loose = outside
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_TypeAlias(self, node: ast.AST) -> ast.AST:
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        if self._scope == CLASS:
            return self._children(node)
        variable = self._add_site("for", node, node.body)
        self._children(node)
        value = _call("iterate", node.iter)
        header = _place_of_iter(node, node.iter)
        node.iter = _at(ast.NamedExpr(ast.Name(variable, ast.Store()), value), header)
        line: int = header.lineno  # type: ignore[attr-defined]
        node.body = [self._guard(variable, line, node.body)]
        return _release([variable], node, self._kept, left=0 if self._repeats else line)

    def _guard(self, variable: str, line: int, body: list[ast.stmt]) -> ast.stmt:
        """Return the body of a turn: the loop may go on where an exception of ours has left it.

        line  of the loop's header
        """
        if self._repeats:
            goes_on, left_by = _method(variable, "again"), _ours("Retry")
        else:
            goes_on, left_by = _call("goes_on", ast.Constant(line)), _call("ends_turn")
        is_over = ast.UnaryOp(ast.Not(), goes_on)
        handler = ast.ExceptHandler(left_by, None, [ast.If(is_over, [ast.Raise()], [])])
        return _at(ast.Try(body, [handler], [], []), body[0])

    def visit_While(self, node: ast.While) -> ast.AST:
        is_constant = isinstance(node.test, ast.Constant)
        never = is_constant and not node.test.value  # type: ignore[attr-defined]
        if self._scope == CLASS or never:
            return self._children(node)
        variable = self._add_site("while", node, node.body)
        self._children(node)
        body = node.body
        if not is_constant:
            leave: list[ast.stmt] = [ast.Break()]
            if node.orelse:
                leave = [ast.Expr(_method(variable, "end")), ast.Continue()]
            stop = ast.If(ast.UnaryOp(ast.Not(), node.test), leave, [])
            body = [_at(stop, node.test), *body]
        target = ast.Name(variable, ast.Store())
        guard = self._guard(variable, node.lineno, body)
        loop = ast.For(target, _call("repeat"), [guard], node.orelse)
        left = 0 if self._repeats else node.lineno
        return _release([variable], _at(loop, node), self._kept, left=left)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.AST:
        if self._scope != FUNCTION:
            return self._children(node)
        variable = self._add_site("yield from", node, [node])
        self._children(node)
        self._loose.append(variable)
        value = _call("delegate", node.value)
        node.value = _at(ast.NamedExpr(ast.Name(variable, ast.Store()), value), node)
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        is_plain = self._scope != CLASS and not node.generators[0].is_async
        self._comprehension(node, node.generators)
        if is_plain:
            self.changes += 1
            first = node.generators[0]
            first.iter = _at(_call("iterate", first.iter), _place_of_iter(node, first.iter))
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        if self._scope != FUNCTION or not _calls(node) or _is_async(node):
            self._comprehension(node, node.generators)
            return node
        variable = self._add_site("comprehension", node, [node])
        self._comprehension(node, node.generators, scope_of_first=FUNCTION)
        self._loose.append(variable)
        if sys.version_info < (3, 12):
            self._kept.add(variable)
        first = node.generators[0]
        collector = _at(_call("Collector", first.iter), _place_of_iter(node, first.iter))
        holder = ast.NamedExpr(ast.Name(variable, ast.Store()), collector)
        first.iter = ast.copy_location(ast.Name(variable, ast.Load()), first.iter)
        node.elt = _at(_method(variable, "append", node.elt), node.elt)
        return _at(ast.Call(ast.Attribute(holder, "take", ast.Load()), [node], []), node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        self._comprehension(node, node.generators)
        return node

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        self._comprehension(node, node.generators)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self._children(node)
        if isinstance(node.func, ast.Name) and node.func.id in NAMES:
            self.changes += 1
            node.func = _at(_call("twin", node.func), node.func)
        return node

    def _comprehension(
        self,
        node: ast.AST,
        generators: list[ast.comprehension],
        scope_of_first: str = COMPREHENSION,
    ) -> None:
        """Visit a comprehension. CPython forbids walruses in its iterables, the first included."""
        first = generators[0]
        with self._in(scope_of_first):
            iterable = self.visit(first.iter)
        first.iter = ast.copy_location(ast.Constant(None), iterable)
        with self._in(COMPREHENSION):
            self._children(node)
        first.iter = iterable

    def _children(self, node: Node) -> Node:
        return self.generic_visit(node)  # type: ignore[return-value]

    def _block(self, body: list[ast.stmt]) -> None:
        body[:] = [self.visit(one) for one in body]

    def _add_site(self, kind: str, node: ast.stmt | ast.expr, body: Sequence[ast.AST]) -> str:
        self.changes += 1
        variable = f"{PREFIX}{len(self.sites) + 1}"
        last = getattr(body[-1], "end_lineno", None) or node.lineno
        self.sites.append(LoopSite(self._function, node.lineno, last, kind, variable))
        if self._function == _MODULE:
            self._kept.add(variable)
        return variable

    @contextmanager
    def _in(self, scope: str, name: str = "", separator: str = "") -> Iterator[None]:
        """Visit what stands in a scope inside; `separator` comes after its qualified name."""
        outside = self._scope, self._function, self._prefix
        self._scope = scope
        if name:
            qualified = f"{self._prefix}{name}"
            self._prefix = f"{qualified}{separator}"
            if scope != CLASS:
                self._function = qualified
        yield
        self._scope, self._function, self._prefix = outside


def _release(
    variables: list[str],
    statement: ast.stmt,
    kept: set[str],
    *,
    left: int = 0,
) -> ast.stmt:
    """Return the statement, after which these variables are unbound, however it is left.

    kept  variables that are only cleared: those of closures, since torch.compile cannot trace how
          one is unbound, and those of a module, which has them from its first line on: the script
          may go through `globals()`, and a dict must not grow or shrink meanwhile
    left  line of the loop that the statement is, if that is to be told
    """
    clear = _clear(variables)
    rest = [ast.Name(one, ast.Del()) for one in variables if one not in kept]
    final: list[ast.stmt] = [clear, ast.Delete([*rest])] if rest else [clear]
    if left:
        final.append(ast.Expr(_call("left", ast.Constant(left))))
    return _at(ast.Try([statement], [], [], final), statement)


def _clear(variables: list[str]) -> ast.stmt:
    return ast.Assign([ast.Name(one, ast.Store()) for one in variables], ast.Constant(None))


def _ours(name: str) -> ast.expr:
    return ast.Attribute(ast.Name("__tm__", ast.Load()), name, ast.Load())


def _call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(_ours(name), [*args], [])


def _method(variable: str, name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(ast.Name(variable, ast.Load()), name, ast.Load()), [*args], [])


def _at(new: Node, where: ast.AST) -> Node:
    """Give a place to the nodes of a new tree that have none; known trees in it are left alone."""
    if "lineno" in new._attributes:
        if hasattr(new, "lineno"):
            return new
        ast.copy_location(new, where)
        if new.end_lineno != new.lineno:  # type: ignore[attr-defined]
            # CPython gives attributes the line on which they end.
            new.end_lineno = new.lineno  # type: ignore[attr-defined]
            new.end_col_offset = new.col_offset  # type: ignore[attr-defined]
    for child in ast.iter_child_nodes(new):
        _at(child, where)
    return new


def _place_of_iter(loop: ast.AST, iterable: ast.AST) -> ast.AST:
    """Return the node that has the line on which this Python calls `iter`."""
    return iterable if sys.version_info >= (3, 13) else loop


def _end_of_prologue(body: list[ast.stmt]) -> int:
    """Count the statements that must come first: the docstring and imports from __future__."""
    count = 0
    for statement in body:
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not (is_future or (is_text and count == 0)):
            break
        count += 1
    return count


def _calls(node: ast.ListComp) -> bool:
    """Tell whether a comprehension calls something for its items."""
    parts: list[ast.AST] = [node.elt, *node.generators[1:], *node.generators[0].ifs]
    return any(isinstance(one, ast.Call) for part in parts for one in ast.walk(part))


def _is_async(node: ast.ListComp) -> bool:
    if any(one.is_async for one in node.generators):
        return True
    return any(isinstance(one, ast.Await) for one in ast.walk(node))
