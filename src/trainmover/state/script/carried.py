"""Which attributes carry something from one step to the next, and which are only of the step.

Many scripts keep what a step computes on an object: `self.fake = ...`, `self.loss = ...`. Whoever
reads it does so after the same step has written it, so it is worth nothing between two steps. An
attribute is *carried* if some code may read it before that is written: statements are followed in
their order, calls into the functions of that name, and each round of a loop begins with nothing
written, since a fetch may lie between two rounds. That holds for the loops of a function too that
is called by no loop: what was written before the call was written once, for all rounds.
"""

import ast
from collections.abc import Iterable, Iterator

from trainmover.state.script.syntax import children, walk

Function = ast.FunctionDef | ast.AsyncFunctionDef
_Summary = tuple[frozenset[str], frozenset[str]]
"""Attributes that a function may read before it writes them, and those it surely writes."""
_NOTHING: _Summary = (frozenset(), frozenset())


def carried_attributes(tree: ast.Module) -> set[str]:
    """By name, whatever object they belong to."""
    return _Reader(tree).carried()


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._functions: dict[str, list[Function]] = {}
        for node in walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._functions.setdefault(node.name, []).append(node)
        self._called = {name for node in walk(tree) if (name := _called(node))}
        functions = {id(node.func) for node in walk(tree) if isinstance(node, ast.Call)}
        self._handed_out = {
            name
            for node in walk(tree)
            if id(node) not in functions and (name := _named(node)) in self._functions
        }
        self._known: dict[str, _Summary] = {}
        self._in_loops: dict[str, frozenset[str]] = {}  # What the outer loops of a function read.
        self._under_way: set[str] = set()
        self._loops = 0  # Around what is looked at, in its function.
        self._looped: set[str] = set()

    def carried(self) -> set[str]:
        read, _ = self._block(self._tree.body, frozenset())
        found = set(read) | self._looped
        for name in self._functions:  # Where something else calls it nothing is written before.
            if name not in self._called or name in self._handed_out or _is_called_by_others(name):
                found |= self._summary(name)[0]
        for name in self._functions.keys() - self._known.keys():  # They call only each other.
            found |= self._summary(name)[0]
        return found

    def _summary(self, name: str) -> _Summary:
        """Of all functions of that name together."""
        if name in self._known:
            return self._known[name]
        if name in self._under_way or name not in self._functions:
            return _NOTHING
        self._under_way.add(name)
        around, self._loops, self._looped = (self._loops, self._looped), 0, set()
        each = [self._block(one.body, frozenset()) for one in self._functions[name]]
        self._in_loops[name] = frozenset(self._looped)
        self._loops, self._looped = around
        self._under_way.discard(name)
        read = frozenset[str]().union(*(one for one, _ in each))
        written = each[0][1].intersection(*(one for _, one in each[1:]))
        self._known[name] = read, written
        return read, written

    def _block(self, body: Iterable[ast.stmt], written: frozenset[str]) -> _Summary:
        read: frozenset[str] = frozenset()
        for statement in body:
            more, written = self._statement(statement, written)
            read |= more
        return read, written

    def _statement(self, node: ast.stmt, written: frozenset[str]) -> _Summary:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return frozenset(), written
            case ast.ClassDef():
                return self._block(node.body, written)
            case ast.If():
                read, written = self._expression(node.test, written)
                one, after = self._block(node.body, written)
                other, otherwise = self._block(node.orelse, written)
                return read | one | other, after & otherwise
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(node, written)
            case ast.With() | ast.AsyncWith():
                read = frozenset[str]()
                for item in node.items:
                    more, written = self._expression(item.context_expr, written)
                    read |= more
                more, written = self._block(node.body, written)
                return read | more, written
            case ast.Try():
                read, after = self._block(node.body, written)
                for handler in node.handlers:
                    read |= self._block(handler.body, written)[0]
                more, after = self._block(node.orelse, after)
                last, after = self._block(node.finalbody, after)
                return read | more | last, after if not node.handlers else written
            case ast.AugAssign(target=ast.Attribute(attr=name)):
                read, written = self._expression(node.value, written)
                return read | ({name} - written), written | {name}
        return self._expression(node, written)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, written: frozenset[str]) -> _Summary:
        head = node.test if isinstance(node, ast.While) else node.iter
        read, written = self._expression(head, written)
        self._loops += 1
        inside, _ = self._block(node.body, frozenset())
        self._loops -= 1
        if not self._loops:
            self._looped |= inside
        after, written = self._block(node.orelse, written)
        return read | inside | after, written

    def _expression(self, node: ast.AST, written: frozenset[str]) -> _Summary:
        """One statement without others inside, or an expression: reads and calls, then stores."""
        read: frozenset[str] = frozenset()
        stored: set[str] = set()
        for part in _evaluated(node):
            if isinstance(part, ast.Attribute):
                if isinstance(part.ctx, ast.Load):
                    read |= {part.attr} - written
                else:
                    stored.add(part.attr)
            elif name := _called(part):
                more, surely = self._summary(name)
                if not self._loops:
                    self._looped |= self._in_loops.get(name, frozenset())
                read, written = read | (more - written), written | surely
                read |= _asked_by_name(part) - written
        return read, written | stored


def _called(node: ast.AST) -> str:
    """The name by which something is called; "" if nothing is, or without a name."""
    return _named(node.func) if isinstance(node, ast.Call) else ""


def _named(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_called_by_others(name: str) -> bool:
    """Python itself calls it, or torch."""
    return name == "forward" or (name.startswith("__") and name.endswith("__"))


def _asked_by_name(call: ast.AST) -> set[str]:
    """As in getattr(self, "best")."""
    if isinstance(call, ast.Call) and _called(call) in ("getattr", "hasattr") and call.args[1:]:
        name = call.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return {name.value}
    return set()


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """What is below, inner parts before those around them, as they are evaluated."""
    for child in children(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _evaluated(child)
    yield node
