# SPDX-License-Identifier: Apache-2.0
"""Which `with`s let every error pass, so that what is stored in one is stored where it ends.

That depends on the manager: one of Python's or a library's passes errors on, but for a few that are
known. Of one of the script's own its code tells: what `__exit__` returns, or what a generator does
where an error comes out of its `yield`. What the manager is follows from the expression, as far as
names, attributes, entries and what functions return tell; where nobody knows, it may be any that
the file has. None of the script's code is run for it.
"""

import ast
import builtins
import contextlib
import dis
import functools
from collections.abc import Iterable, Iterator, Mapping
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GeneratorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from trainmover.installed import is_installed
from trainmover.state.script.code.grammar import own
from trainmover.state.script.code.scopes import scope_key
from trainmover.state.script.code.source import tree_of
from trainmover.state.script.code.syntax import Function, called_name, walk
from trainmover.state.script.place.liveness import flow_of
from trainmover.state.script.place.withs import EXITS, STACKS, made_by, withs
from trainmover.state.script.things.held import closed_over, held_by
from trainmover.state.script.things.libraries import module_of

_OURS = __name__.partition(".")[0]
_ENTERS = frozenset({"enter_context", "enter_async_context"})
_PUSHES = frozenset({"push", "push_async_exit"})
_MAKE: tuple[Any, ...] = (contextlib.contextmanager, contextlib.asynccontextmanager)
_BY_GENERATOR = frozenset(make(iter).__code__ for make in _MAKE)
_KEEP = frozenset(
    {"suppress", "raises", "RaisesContext", "RaisesExc", "RaisesGroup", "_AssertRaisesContext"}
    | {"CancelScope", "move_on_after", "move_on_at"}
)
"""Of libraries, that keep errors."""
_IN_C = (BuiltinFunctionType, MethodDescriptorType)
_GIVE = frozenset({"next", "getattr", "get", "pop", "popleft", "setdefault", "max", "min"})
_DEPTH_MAX = 4
_CONTAINERS = (dict, list, tuple)
Names = Mapping[str, Any]
UNKNOWN: Any = object()


def quiet_in(code: CodeType, names: Names, top: dict[str, Any], depth: int = 0) -> frozenset[int]:
    """Offsets of the handlers of those that let every error pass.

    names: what is known of the frame's. top: of its file
    """
    if not withs(code):
        return frozenset()
    makers = Makers(code.co_filename, (code.co_name, code.co_firstlineno), names, top, depth)
    found = {at: made_by(code.co_filename, one.made_at) for at, one in withs(code).items()}
    return frozenset(at for at, one in found.items() if one is not None and not makers.keep(one))


class Makers:
    """Of the managers of one function's `with`s."""

    def __init__(
        self, path: str, key: tuple[str, int], names: Names, top: dict[str, Any], depth: int = 0
    ) -> None:
        """path, key: of the function. names, top: as in `quiet_in`"""
        self._path = path
        self._key = key
        self._names = names
        self._top = top
        self._depth = depth
        self._is_own = not is_installed(path)  # In a library nobody keeps errors unawares.

    def keep(self, node: ast.expr) -> bool:
        """Whether a manager that this gives may keep an error: where nobody can tell what it is,
        whether any may that the file has."""
        for one, makes in self.managers(node):
            if one is UNKNOWN:
                if self._is_own and self._any_keeps():
                    return True
            elif self._makes_one(one) if makes else self._is_one(one):
                return True
        return False

    def of(self, node: ast.expr) -> Iterator[Any]:
        """What it stands for, as far as that can be told: one object, or none; several where it is
        an entry of a container."""
        match node:
            case ast.Name(id=name):
                for held in (self._names, self._top, vars(builtins)):
                    if name in held:
                        yield held[name]
                        return
            case ast.Attribute(value=owner, attr=name):
                for one in self.of(owner):
                    yield from _attribute(one, name)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
                yield [one for part in parts for one in self.of(part)]
            case ast.Subscript(value=owner):
                for one in self.of(owner):
                    if type(one) in _CONTAINERS:
                        yield from one.values() if isinstance(one, dict) else one

    def managers(self, node: ast.expr) -> Iterator[tuple[Any, bool]]:
        """Classes, functions and objects that are, or make, the manager that this gives, each with
        whether it makes it; UNKNOWN where nobody can tell."""
        match node:
            case ast.IfExp(body=body, orelse=orelse):
                parts, within = [body, orelse], self
            case ast.BoolOp(values=values):
                parts, within = values, self
            case ast.NamedExpr(value=value):
                parts, within = [value], self
            case ast.Name(id=name) if self._depth < _DEPTH_MAX and self._stored(name):
                parts, within = self._stored(name), self._below()
            case _:
                makes = isinstance(node, ast.Call)
                found = list(self.of(node.func if isinstance(node, ast.Call) else node))
                found = [UNKNOWN if _gives_any(one) else one for one in found]
                yield from ((one, makes) for one in found or [UNKNOWN])
                return
        for part in parts:
            yield from within.managers(part)

    def _below(self) -> "Makers":
        return Makers(self._path, self._key, self._names, self._top, self._depth + 1)

    def _stored(self, name: str) -> list[ast.expr]:
        """What the function itself gives that name."""
        node = function_at(self._path, self._key)
        found = [] if node is None else [one for one in own(node) if isinstance(one, ast.Assign)]
        targets = [(one.value, target) for one in found for target in one.targets]
        return [
            value for value, target in targets if isinstance(target, ast.Name) and target.id == name
        ]

    def _is_one(self, value: Any) -> bool:
        """Whether this manager may keep an error."""
        made_by = held_by(value).get("gen")
        if isinstance(made_by, GeneratorType | AsyncGeneratorType):
            function = held_by(value).get("func")
            return not isinstance(function, FunctionType) or self._yields(function)
        return self._class(type(value))

    def _makes_one(self, value: Any) -> bool:
        """Whether this gives one, called, that may."""
        if isinstance(value, MethodType):
            return self._makes_one(value.__func__)
        if isinstance(value, functools.partial):
            return self._makes_one(value.func)
        if isinstance(value, type):
            return self._class(value)
        if not isinstance(value, FunctionType):  # Of another kind the script's own may be.
            return not _is_foreign(type(value))
        if _is_ours(value.__module__):
            return False
        inner = held_by(value).get("__wrapped__")
        if _is_by_generator(value) and isinstance(inner, FunctionType):
            return self._yields(inner)
        if is_installed(value.__code__.co_filename):
            return value.__name__ in _KEEP
        return self._returns(value)

    def _returns(self, function: FunctionType) -> bool:
        """Whether what a function of the script's returns may keep an error."""
        code = function.__code__
        node = function_at(code.co_filename, (code.co_name, code.co_firstlineno))
        if node is None or self._depth >= _DEPTH_MAX:
            return False
        found = [one.value for one in own(node) if isinstance(one, ast.Return)]
        key = code.co_name, code.co_firstlineno
        names = closed_over(function)
        makers = Makers(code.co_filename, key, names, function.__globals__, self._depth + 1)
        return not found or any(one is None or makers.keep(one) for one in found)

    def _yields(self, function: FunctionType) -> bool:
        """Whether a generator may go on where an error comes out of its `yield`."""
        if self._depth >= _DEPTH_MAX:
            return False
        code = function.__code__
        names = closed_over(function)
        flow = flow_of(code, quiet_in(code, names, function.__globals__, self._depth + 1))
        yields = [number for number, name in enumerate(flow.ops) if name == "YIELD_VALUE"]
        return any(map(flow.catches, yields))

    def _class(self, kind: type) -> bool:
        if issubclass(kind, STACKS):
            return self._stack()
        owner = next((one for one in kind.__mro__ if not vars(one).keys().isdisjoint(EXITS)), None)
        if owner is None or _is_ours(module_of(owner)):
            return False
        exits = [vars(owner)[name] for name in EXITS if name in vars(owner)]
        functions = [one for one in exits if isinstance(one, FunctionType)]
        if not functions or is_installed(functions[0].__code__.co_filename):
            return owner.__name__ in _KEEP
        return any(may_return_true(one.__code__) for one in functions)

    def _any_keeps(self) -> bool:
        every = [*self._top.values(), *self._names.values()]
        kinds = [one for one in every if isinstance(one, type) and not issubclass(one, STACKS)]
        made = [held_by(one).get("__wrapped__") for one in every if _is_by_generator(one)]
        tree = tree_of(self._path) or ast.Module([], [])
        named = {one.attr for one in walk(tree) if isinstance(one, ast.Attribute)}
        return (
            not named.isdisjoint(_KEEP)
            or any(map(self._class, kinds))
            or any(isinstance(one, FunctionType) and self._yields(one) for one in made)
        )

    def _stack(self) -> bool:
        """What enters one anywhere in the file."""
        tree = tree_of(self._path)
        calls = [one for one in walk(tree or ast.Module([], [])) if isinstance(one, ast.Call)]
        if self._depth >= _DEPTH_MAX or any(called_name(one) in _PUSHES for one in calls):
            return self._is_own
        entered = [one.args[:1] for one in calls if called_name(one) in _ENTERS]
        return any(not args or self._below().keep(args[0]) for args in entered)


def may_return_true(code: CodeType) -> bool:
    """Whether it may return anything but what stands there as None or False."""
    before = ("", None)
    for one in dis.get_instructions(code):
        if one.opname == "RETURN_CONST" and one.argval:
            return True
        if one.opname == "RETURN_VALUE" and (before[0] != "LOAD_CONST" or before[1]):
            return True
        before = one.opname, one.argval
    return False


def _is_foreign(kind: type) -> bool:
    """Whether a class came with Python or by a package installer, or is ours."""
    codes = [one.__code__ for one in vars(kind).values() if type(one) is FunctionType]
    return _is_ours(module_of(kind)) or all(is_installed(one.co_filename) for one in codes)


def _gives_any(value: object) -> bool:
    """Whether it is a function in C that gives what others have made."""
    return isinstance(value, _IN_C) and value.__name__ in _GIVE


def _is_by_generator(value: object) -> bool:
    """Whether it is a function that makes managers out of a generator."""
    return isinstance(value, FunctionType) and value.__code__ in _BY_GENERATOR


def _is_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] == _OURS


def _attribute(owner: object, name: str) -> Iterable[Any]:
    """As far as no code of the script's is needed for it."""
    held = vars(owner) if isinstance(owner, ModuleType) else held_by(owner)
    if name in held:
        return (held[name],)
    kinds = [*(owner.__mro__ if isinstance(owner, type) else ()), *type(owner).__mro__]
    found = next((vars(one)[name] for one in kinds if name in vars(one)), None)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    return () if found is None or isinstance(found, property) else (found,)


@functools.lru_cache(maxsize=256)
def function_at(path: str, key: tuple[str, int]) -> ast.AST | None:
    """The top of a file too."""
    tree = tree_of(path)
    if tree is None or key[0] == "<module>":
        return tree
    nodes = (one for one in walk(tree) if isinstance(one, Function))
    return next((one for one in nodes if scope_key(one) == key), None)
