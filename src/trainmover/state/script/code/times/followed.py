# SPDX-License-Identifier: Apache-2.0
"""What of a file's times counts by being there, or by how much there is (see `counted`), followed
to what that is given: by a store, a return, or a call."""

import ast
from collections.abc import Collection, Iterator
from functools import partial

from trainmover.state.script.code import grammar
from trainmover.state.script.code.scopes import File, Key, Scope, Source, scope_key
from trainmover.state.script.code.syntax import called_name
from trainmover.state.script.code.times.counted import counted
from trainmover.state.script.code.times.telling import Path, Telling
from trainmover.state.script.code.times.whether import is_answer, paths_in

_CONTAINERS = ast.List | ast.Set | ast.Dict | ast.ListComp | ast.SetComp | ast.DictComp
_MAKE_CONTAINERS = frozenset({"list", "set", "dict", "deque", "defaultdict", "OrderedDict"})


class Followed:
    """By what is known so far.

    sizes   lists of times of which the length counts
    there   these and what functions return, and what counts by being there

    but: what is left out whatever it is given
    """

    def __init__(self, file: File, source: Source, telling: Telling, but: Collection[Path]) -> None:
        self._file, self._source, self._telling = file, source, telling
        sizes, whether = self._asked()
        sizes = self._come_from(sizes)
        whether = self._come_from({one for one in whether if not self._is_answer(one)})
        whether -= {*but}
        sizes |= {one for one in whether if self._is_container(one)}
        self.there = sizes | whether
        self.sizes = {one for one in sizes if not one[1].endswith("()")}

    def _asked(self) -> tuple[set[Path], set[Path]]:
        """Of what the size counts, and what counts by being there, in any body of the file."""
        sizes, whether = set[Path](), set[Path]()
        known = {name: nodes[0] for name, nodes in self._telling.named.items() if len(nodes) == 1}
        bodies = [self._file.tree.body, *(node.body for node, _ in self._file.functions)]
        for (key, _, nodes), body in zip(self._file.bodies, bodies, strict=True):
            scope = self._source.scopes[key]
            if any(self._telling.is_time(path, scope) for one in nodes for path in _read_as(one)):
                asked = counted(body, partial(self._telling.tells, scope=scope), known)
                sizes |= self._of_times(asked.sizes, scope)
                whether |= self._of_times(asked.whether, scope)
        return sizes, whether

    def _of_times(self, paths: Collection[str], scope: Scope) -> set[Path]:
        return {
            self._telling.at(path, scope) for path in paths if self._telling.is_time(path, scope)
        }

    def _come_from(self, found: set[Path]) -> set[Path]:
        """These, and what they are given, by a store, a return, or a call: a name for the same."""
        found = {*found}
        while True:
            new = {*self._given_for(found)} - found
            if not new:
                return found
            found |= new

    def _given_for(self, found: set[Path]) -> Iterator[Path]:
        for key, _, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for node in nodes:
                for value in self._values_for(node, key, found):
                    yield from self._of_times({*paths_in(value)}, scope)

    def _values_for(self, node: ast.AST, key: Key, found: set[Path]) -> Iterator[ast.expr]:
        """What is given there to what was found: key is the scope's."""
        scope = self._source.scopes[key]
        if not isinstance(node, ast.AugAssign):
            for target, value in grammar.all_stores_of(node):
                if self._telling.known(target, scope) in found:
                    yield value
        if isinstance(node, ast.Return) and node.value and (0, f"{key[0]}()") in found:
            yield node.value
        for function in self._telling.named.get(called_name(node), ()):
            within = id(self._source.scopes[scope_key(function)])
            for name, value in grammar.given_by(node, function):  # type: ignore[arg-type]
                if (within, name) in found:
                    yield value

    def _is_container(self, known: Path) -> bool:
        """Whether it holds times, and is none itself."""
        stored = self._telling.stored.get(known[1].lstrip("."), [])
        return any(
            isinstance(one, _CONTAINERS) or called_name(one) in _MAKE_CONTAINERS for one in stored
        )

    def _is_answer(self, known: Path) -> bool:
        """Whether it is true or false, by what time it is."""
        return any(map(is_answer, self._telling.stored.get(known[1].lstrip("."), [])))


def _read_as(node: ast.AST) -> Iterator[str]:
    """The path of what is read there; of a function that is called, its name and "()"."""
    match node:
        case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
            yield grammar.path(node)
        case ast.Call():
            yield f"{called_name(node)}()"
