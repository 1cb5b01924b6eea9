# SPDX-License-Identifier: Apache-2.0
"""What an object keeps of what it is given: `def update(self, value, n=1): self.sum += value * n`
keeps it in `sum`, and in `avg` if that is made of `sum`, but not in `count`.

An object that is given nothing but the time tells the time by those attributes. By all others it
may tell anything, as how often it was given it.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from trainmover.state.script.code import grammar
from trainmover.state.script.code.changing import is_change
from trainmover.state.script.code.functions import changes_first
from trainmover.state.script.code.syntax import Function, called_name, children, walk

FEEDS = frozenset({"update", "add", "append", "push", "record", "put", "extend", "insert"})
"""Methods by which objects are given something, time after time."""


def kept_in(
    tree: ast.Module,
    functions: Sequence[tuple[Function, str]],
    tells: Callable[[Function, ast.AST], bool] = lambda function, node: False,
) -> dict[str, set[str]]:
    """By class: attributes in which it keeps what its methods of these names are given first, or
    the time that they ask for themselves.

    functions: those of the file, with the class of each
    tells: whether what stands there in a function is the time
    """
    bases = {
        one.name: {base.id for base in one.bases if isinstance(base, ast.Name)}
        for one in walk(tree)
        if isinstance(one, ast.ClassDef)
    }
    found = {}
    for name in bases:
        methods = [node for node, owner in functions if owner in _with_bases(name, bases)]
        if any(one.name in FEEDS for one in methods):
            found[name] = _Kept(methods, tells).attributes
    return found


def _with_bases(name: str, bases: dict[str, set[str]]) -> set[str]:
    found, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += bases.get(one, ())
    return found


class _Kept:
    """Of one class, until nothing new is found."""

    def __init__(
        self, methods: Iterable[Function], tells: Callable[[Function, ast.AST], bool]
    ) -> None:
        self.attributes: set[str] = set()
        self._tells = tells
        self._methods = [(one, list(grammar.own(one))) for one in methods]
        self._names = {id(one): _first(one) for one, _ in self._methods}
        before = -1
        while before != (before := self._count()):
            for one, nodes in self._methods:
                for node in nodes:
                    self._take(node, one)

    def _count(self) -> int:
        return len(self.attributes) + sum(map(len, self._names.values()))

    def _take(self, node: ast.AST, within: Function) -> None:
        names = self._names[id(within)]
        for target, value in grammar.stores_of(node):
            if self._is_of(value, names) or self._asks(value, within):
                self._keep(target, names)
        match node:
            case ast.For(target=target, iter=value) if self._is_of(value, names):
                self._keep(target, names)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                self._give(name, node, names)
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name)):
                self._give(name, node, names)
            case ast.Call():
                for changed, given in _changed_by(node):
                    if self._all_of(given, names):
                        self._keep(changed, names)

    def _keep(self, target: ast.expr, names: set[str]) -> None:
        """An attribute, of whatever there is in it; or a name."""
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._keep(one, names)
            return
        while isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
            match target:
                case ast.Attribute(value=ast.Name(id="self"), attr=name):
                    self.attributes.add(name)
                    return
            target = target.value
        if isinstance(target, ast.Name) and target.id != "self":
            names.add(target.id)

    def _give(self, method: str, call: ast.Call, names: set[str]) -> None:
        """Another one of its methods gets it."""
        for one, _ in self._methods:
            if one.name == method:
                parameters = [argument.arg for argument in grammar.parameters_of(one)][1:]
                for parameter, value in grammar.arguments(call, parameters):
                    if value is not None and self._is_of(value, names):
                        self._names[id(one)].add(parameter)

    def _all_of(self, values: list[ast.expr], names: set[str]) -> bool:
        varying = [one for one in values if grammar.varies(one)]
        return bool(varying) and all(self._is_of(one, names) for one in varying)

    def _asks(self, value: ast.expr, within: Function) -> bool:
        return any(self._tells(within, one) for one in walk(value))

    def _is_of(self, value: ast.expr, names: set[str]) -> bool:
        """Whether it is made of what was given: not what has something else beside it, nor how many
        there are, nor what only decides."""
        waiting: list[ast.AST] = [value]
        while waiting:
            match waiting.pop():
                case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                    if self._all_of(parts, names):
                        return True
                case ast.Call(func=ast.Name(id="len")):
                    pass
                case ast.IfExp(body=body, orelse=other):
                    waiting += [body, other]
                case ast.Name(id=name) if name in names:
                    return True
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in self.attributes:
                    return True
                case node:
                    waiting += children(node)
        return False


def _changed_by(call: ast.Call) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """What a call may change, each with what it is given beside."""
    match call:
        case ast.Call(func=ast.Attribute(value=held, attr=name)):
            if name in FEEDS or is_change(name):
                yield held, grammar.given_to(call)
    if call.args and changes_first(called_name(call)):
        yield call.args[0], call.args[1:]


def _first(function: Function) -> set[str]:
    """What one of FEEDS is given, but for `self`: its first parameter, or whatever comes."""
    if function.name not in FEEDS:
        return set()
    arguments = function.args
    named = [one.arg for one in grammar.parameters_of(function)][1:2]
    rest = [one.arg for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return {*(named or rest)}
