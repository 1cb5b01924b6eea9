# SPDX-License-Identifier: Apache-2.0
"""To which function, or to the top of its file, a name in a function belongs: what is stored to an
entry of a global is stored to no variable of the function's own.
"""

import ast
from dataclasses import dataclass, field

from trainmover.state.script.code import grammar
from trainmover.state.script.code.scopes import MODULE, File, Key, Scope
from trainmover.state.script.code.syntax import Function, children


@dataclass
class Within(Scope):
    """An expression with names of its own, or a function under an assumption on its parameters.

    around  the scope that it stands in
    bound   its own names
    places  those of them that tell the machine, as text
    """

    around: Scope = field(default_factory=Scope)
    bound: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)


class Belonging:
    """Of the names of one file."""

    def __init__(self, file: File, scopes: dict[Key, Scope], key_of: dict[int, Key]) -> None:
        """key_of: of each function, by its id"""
        self._top = scopes[MODULE]
        self._own: dict[int, set[str]] = {}
        self._globals: dict[int, set[str]] = {}
        self._around: dict[int, Scope] = {}
        self._scopes, self._key_of = scopes, key_of
        self._below(file.tree, self._top)

    def _below(self, node: ast.AST, scope: Scope) -> None:
        for child in children(node):
            inner = scope
            if isinstance(child, Function):
                inner = self._scopes[self._key_of[id(child)]]
                self._own[id(inner)], self._globals[id(inner)] = _names_of(child)
                self._around[id(inner)] = scope
            self._below(child, inner)

    def scope_of(self, name: str, scope: Scope) -> Scope:
        while scope is not self._top:
            if isinstance(scope, Within):
                if name in scope.bound:
                    return scope
                scope = scope.around
            elif name in self._globals.get(id(scope), ()):
                return self._top
            elif name in self._own.get(id(scope), ()):
                return scope
            else:
                scope = self._around.get(id(scope), self._top)
        return scope


def _names_of(function: Function) -> tuple[set[str], set[str]]:
    """Its own, and those that it says are global."""
    own, of_top, around = grammar.names_given(function), set[str](), set[str]()
    for node in grammar.own(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
            case ast.Global(names=names):
                of_top.update(names)
            case ast.Nonlocal(names=names):
                around.update(names)
    return own - of_top - around, of_top
