"""Where a script asks how much lies in a container, and does more with the answer than a mean or a
line of text: a list of times then counts the steps.

    sum(times) / len(times)                        a mean: nothing is counted
    if len(times) > 100: times.pop(0)              nothing else is decided
    if len(times) % 50 == 0: print(times[-1])      something is shown
    rate = 0.1 if len(times) > 10 else 1.0         it counts
"""

import ast
from collections.abc import Callable, Iterator, Sequence

from trainmover.state.script.code import grammar
from trainmover.state.script.code.syntax import Function, called_name, children

_SHOWS = frozenset(
    {"print", "debug", "info", "warning", "log", "write", "add_scalar", "add_scalars", "log_metric"}
    | {"set_postfix", "set_description", "set_postfix_str", "set_description_str", "echo", "flush"}
)
_DIVISIONS = (ast.Div, ast.FloorDiv)
_DEPTH_MAX = 4
Tells = Callable[[ast.expr], bool]
"""Whether a value is the time, or made out of it."""


def counted(body: Sequence[ast.stmt], tells: Tells, functions: dict[str, Function]) -> set[str]:
    """Paths of containers, as `grammar.path` has them, whose size counts in a function or file.

    tells: in this scope
    functions: of the file, by name: what is called where a size decides
    """
    return _Reader(body, tells, functions).found


class _Reader:
    def __init__(
        self, body: Sequence[ast.stmt], tells: Tells, functions: dict[str, Function]
    ) -> None:
        self.found = set[str]()
        self._body = body
        self._tells = tells
        self._functions = functions
        self._sizes = dict(_named_sizes(body))
        for statement in _all_in(body):
            self._look(statement)

    def _look(self, statement: ast.stmt) -> None:
        match statement:
            case ast.If(test=decides) | ast.While(test=decides) | ast.For(iter=decides):
                if (asked := {*self._asked(decides)}) and not self._is_idle(_blocks_of(statement)):
                    self.found |= asked
            case ast.Assign(targets=[ast.Name()], value=ast.Call() as value) if size_of(value):
                pass  # Another name for it.
            case ast.Expr(value=ast.Call() as call) if called_name(call) in _SHOWS:
                pass
            case _:
                self.found |= {*self._asked(statement)}

    def _asked(self, node: ast.AST) -> Iterator[str]:
        """Containers of which it is asked how much lies in them, for more than a mean or a text."""
        if path := self._size(node):
            yield path
            return
        for child in children(node):
            if isinstance(child, ast.stmt | Function | ast.JoinedStr | ast.Lambda):
                continue
            match node:
                case ast.BinOp(op=op, left=over, right=under) if isinstance(op, _DIVISIONS):
                    if child is under and self._tells(over):
                        continue
                case ast.IfExp(test=test, body=one, orelse=other) if child is test:
                    both = self._is_told(one) and self._is_told(other)
                    if both and (self._tells(one) or self._tells(other)):
                        continue
                case ast.Subscript(value=held, slice=place) if child is place:
                    if self._tells(held):
                        continue
                case ast.Slice():
                    continue  # Part of one of the above, or of what is no list of times.
            yield from self._asked(child)

    def _size(self, node: ast.AST) -> str:
        """The path of what a call or a name says the size of."""
        if isinstance(node, ast.Name):
            return self._sizes.get(node.id, "") if isinstance(node.ctx, ast.Load) else ""
        return size_of(node) if isinstance(node, ast.Call) else ""

    def _is_told(self, value: ast.expr) -> bool:
        return isinstance(value, ast.Constant | ast.JoinedStr) or self._tells(value)

    def _is_idle(self, statements: Sequence[ast.stmt], depth: int = 0) -> bool:
        """Whether these only show something, or work with the time."""
        return all(self._does_nothing(one, depth) for one in statements)

    def _does_nothing(self, statement: ast.stmt, depth: int) -> bool:
        match statement:
            case ast.Pass() | ast.Global() | ast.Nonlocal():
                return True
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
                return stored or (local and self._is_told(value))
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
            return grammar.path(held)
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
