# SPDX-License-Identifier: Apache-2.0
"""What functions do to what they are given: `def update(averages, params): for a, p in
zip(averages, params): a.mul_(0.9)` changes its first.

A function is known by its names, in whichever file of the script it is written, and by the names
that it has where it is called: `from averages import update as move`. Whatever else a name may
stand for (a parameter, what another function returns, a library's function) may change all that it
is given, but for what is known to read.
"""

import ast
import builtins
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy
from torch import Tensor

from trainmover.state.script.code.changing import (
    CHANGES,
    changed_in,
    is_asked_to_change,
    is_in_place,
    root_of,
)
from trainmover.state.script.code.grammar import given_to, imports, own
from trainmover.state.script.code.syntax import Function, called_name, children, last_name, walk

READ_BY = frozenset(
    {"len", "print", "sum", "min", "max", "sorted", "list", "tuple", "set", "dict", "frozenset"}
    | {"str", "repr", "isinstance", "float", "int", "bool", "abs", "any", "all", "id", "type"}
    | {"range", "hasattr", "format", "round", "hash", "enumerate", "zip", "reversed", "Counter"}
)
"""Functions that only read what they are given, or whose results loops take apart."""
SHOWN_BY = frozenset(
    {"debug", "info", "warning", "warn", "error", "exception", "critical", "log", "report"}
    | {"save", "dump", "dumps", "write", "writerow", "open", "send", "isend", "barrier"}
)
"""Functions and methods that give it to people, to files or to other processes."""
OF_OBJECTS = frozenset(
    {*dir(Tensor), *dir(numpy.ndarray), *dir(list), *dir(dict), *dir(set), *dir(deque), *dir(str)}
)
"""Methods that change at most their own object. Those of CHANGES keep what they are given."""
KNOWN = frozenset({"torch", "torchvision", "torchaudio", "numpy", *sys.stdlib_module_names})
"""Libraries whose functions change what they are given only if their names say so."""
_WRAPS = frozenset({"compile", "script", "jit", "vmap", "wraps", "cache", "lru_cache", "reduce"})
"""Functions of these libraries that make functions out of others."""
By = int | str
"""By which a function has what it is given: its place, or a parameter's name."""
ALL = "*"
"""By any of them."""
Changed = dict[str, frozenset[By]]
"""By the name of a function: parameters that it changes, by place and by name."""
_FIRST: frozenset[By] = frozenset({0})
_OF_LIBRARIES: Changed = {
    **dict.fromkeys(("heappush", "heappop", "heapify", "heapreplace", "heappushpop"), _FIRST),
    **dict.fromkeys(("insort", "insort_left", "insort_right", "shuffle"), _FIRST),
    **dict.fromkeys(("setitem", "delitem", "iadd", "isub", "imul", "itruediv"), _FIRST),
    **dict.fromkeys(("copyto", "at", "putmask", "place", "put_along_axis"), _FIRST),
    **dict.fromkeys(("fill_diagonal", "all_reduce", "broadcast", "reduce", "recv"), _FIRST),
    **dict.fromkeys(("all_gather", "all_gather_into_tensor", "all_gather_object"), _FIRST),
    **dict.fromkeys(("reduce_scatter", "reduce_scatter_tensor", "all_to_all"), _FIRST),
    **dict.fromkeys(("all_to_all_single", "broadcast_object_list"), _FIRST),
    "vector_to_parameters": frozenset({1}),
}
"""Python's own, numpy's and torch's, beside those whose names end with an underscore."""


@dataclass(frozen=True)
class Taker:
    """Who is given something.

    called   a function's name, ".step" of an attribute, "&step" of one that is given along, as to
             map(step, kept); "" of what has none
    alone    whether it may change it, if no file of the script says what it does
    """

    called: str
    by: By
    alone: bool


@dataclass(frozen=True)
class Body:
    """What a function does to what it is given.

    by_place  its parameters, in the order of a call
    rest      those that have whatever else it is given
    changes   those that it changes by itself
    gives     those that it gives to others, with these
    """

    name: str
    by_place: tuple[str, ...] = ()
    rest: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    gives: frozenset[tuple[str, Taker]] = frozenset()


@dataclass(frozen=True)
class Alias:
    """Another name of a function, or of an object that is called as one; both as of a Taker.

    filled      so many of its places are, as in partial(update, averages)
    of_library  whether it is one that is known
    is_stored   or else it is the name by which something is given, and nobody may ever read it
    """

    name: str
    of: str
    filled: int = 0
    of_library: bool = False
    is_stored: bool = True


@dataclass
class Functions:
    """Of one file.

    unclear  names that may stand for anything, as of a Taker
    """

    bodies: list[Body] = field(default_factory=list)
    aliases: list[Alias] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)


class Changes:
    """What all these functions change, who call each other.

    >>> functions = functions_in(ast.parse("def step(kept):\\n  kept[0].add_(1)\\nmove = step"))
    >>> Changes([functions]).made_by(Taker("move", 0, alone=False))
    True
    """

    def __init__(self, files: Iterable[Functions]) -> None:
        files = [*files]
        self._bodies = [body for one in files for body in one.bodies]
        self._aliases = [alias for one in files for alias in one.aliases]
        self._known: Changed = {one.name: frozenset() for one in self._bodies}
        self._unclear = {name for one in files for name in one.unclear}
        while self._know_aliases():
            pass
        while self._doubt_aliases():
            pass
        while self._follow():
            pass

    def made_by(self, taker: Taker) -> bool:
        """Whether it may change what it is given."""
        if taker.called in self._unclear:
            return True
        changed = self._known.get(_last(taker.called))
        if changed is None:
            return taker.alone
        return bool(changed) if ALL in {taker.by, *changed} else taker.by in changed

    def _know_aliases(self) -> bool:
        """Whether anything new is known by that."""
        before = len(self._known)
        for one in self._aliases:
            if one.of_library or _last(one.of) in self._known:
                self._learn(_last(one.name), set())
        return before != len(self._known)

    def _doubt_aliases(self) -> bool:
        before = len(self._unclear)
        for one in self._aliases:
            is_known = one.of_library or _last(one.of) in self._known
            if one.is_stored and (one.of in self._unclear or not is_known):
                self._unclear.add(one.name)
        return before != len(self._unclear)

    def _follow(self) -> bool:
        before = dict(self._known)
        for one in self._aliases:
            of = _last(one.of)
            changed = self._known.get(of, _OF_LIBRARIES.get(of, frozenset()))
            if _last(one.name) in self._known:
                left = {by if type(by) is str else int(by) - one.filled for by in changed}
                self._learn(_last(one.name), {by for by in left if type(by) is str or int(by) >= 0})
        for body in self._bodies:
            changes = body.changes | {name for name, taker in body.gives if self.made_by(taker)}
            places = (place for place, name in enumerate(body.by_place) if name in changes)
            self._learn(body.name, {*changes, *places, *({ALL} if body.rest & changes else ())})
        return before != self._known

    def _learn(self, name: str, changed: set[By]) -> None:
        self._known[name] = self._known.get(name, frozenset()) | changed


class Calls:
    """Of one file: who is given what."""

    def __init__(self, tree: ast.Module) -> None:
        self._libraries = {name for name, full in imports(tree) if full.partition(".")[0] in KNOWN}
        self._for_effect = {id(one.value) for one in walk(tree) if isinstance(one, ast.Expr)}

    def givens(self, call: ast.Call) -> Iterator[tuple[Taker, ast.expr]]:
        """What it is given, each with who takes it."""
        if called_name(call) == "partial" and call.args:
            function, *given = call.args
            filled = ast.Call(function, given, call.keywords)
            yield from self.givens(ast.copy_location(filled, call))
            return
        starred = False
        for place, value in enumerate(call.args):
            starred |= isinstance(value, ast.Starred)
            yield self._taker(call, ALL if starred else place), value
        for one in call.keywords:
            yield self._taker(call, one.arg or ALL), one.value
        given = given_to(call)
        for along in given if called_name(call) not in READ_BY else ():
            if name := last_name(along):
                taker = Taker(f"&{name}", ALL, alone=False)
                yield from ((taker, one) for one in given if one is not along)

    def is_of_library(self, function: ast.expr) -> bool:
        """Whether it is of a library that is known, or an object of such a class."""
        if isinstance(function, ast.Call):
            return called_name(function) not in _WRAPS and self.is_of_library(function.func)
        return root_of(function) in self._libraries

    def changed_in(self, node: ast.AST) -> Iterator[str]:
        """Roots of what changes there."""
        return changed_in(node, self._libraries)

    def _taker(self, call: ast.Call, by: By) -> Taker:
        name, called, of_object = called_name(call), _key(call.func), False
        if isinstance(call.func, ast.Call):
            name, called = "", _object(called_name(call.func))
        elif isinstance(call.func, ast.Attribute):
            of_object = name in OF_OBJECTS and name not in CHANGES
        of_library = self.is_of_library(call.func)
        if of_library or (isinstance(call.func, ast.Name) and hasattr(builtins, name)):
            alone = self._is_changed(call, name, by)
            called = "" if name in READ_BY or called.startswith(".") else called
        else:
            alone = not of_object
        alone &= name not in READ_BY | SHOWN_BY
        return Taker(called, by, alone or by == "out" or is_asked_to_change(call))

    def _is_changed(self, call: ast.Call, name: str, by: By) -> bool:
        """Of what a library's function is given. Who calls one for no result wants a change."""
        changed = _OF_LIBRARIES.get(name, _FIRST if is_in_place(name) else None)
        if changed is not None:
            return by in {ALL, *changed}
        return id(call) in self._for_effect and not any(one.arg == "out" for one in call.keywords)


def changes_first(name: str) -> bool:
    """Whether a library's function of that name changes what it is given first."""
    return 0 in _OF_LIBRARIES.get(name, ()) or is_in_place(name)


def functions_in(tree: ast.Module) -> Functions:
    """Functions and methods of a file, and what else names stand for."""
    calls, found = Calls(tree), Functions()
    aliased = set[int]()
    for node in walk(tree):
        for target, alias in _aliases(node, calls):
            found.aliases.append(alias)
            aliased.add(id(target))
        for one in children(node):
            if isinstance(one, Function):
                found.bodies += _read(one, node, calls)
        if isinstance(node, ast.ClassDef):
            found.bodies += _plainly_made(node)
        if isinstance(node, ast.arg):
            found.unclear.add(node.arg)
        elif isinstance(getattr(node, "ctx", None), ast.Store) and id(node) not in aliased:
            found.unclear.add(_key(node))
    found.unclear.discard("")
    for owner in (tree, *(one for one in walk(tree) if isinstance(one, ast.ClassDef))):
        names = (one for one in own(owner) if isinstance(one, ast.Name))
        stored = {one.id for one in names if isinstance(one.ctx, ast.Store)}
        found.unclear |= {f".{name}" for name in stored & found.unclear}
    return found


def _key(node: ast.AST) -> str:
    """As of a Taker."""
    return f".{node.attr}" if isinstance(node, ast.Attribute) else last_name(node)


def _last(called: str) -> str:
    return called.lstrip(".&")


def _object(kind: str) -> str:
    """As a function: an object of that class, which is called."""
    return f"{kind}()"


def _aliases(node: ast.AST, calls: Calls) -> Iterator[tuple[ast.AST, Alias]]:
    """Other names that this node gives, each with where it stands."""
    match node:
        case ast.ImportFrom(names=names, module=module):
            known = not node.level and (module or "").partition(".")[0] in KNOWN
            named = ((one, one.asname) for one in names if one.asname)
            yield from ((one, Alias(name, one.name, of_library=known)) for one, name in named)
        case ast.Assign(targets=[target], value=value) if last_name(target):
            yield from ((target, one) for one in _alias(_key(target), value, calls))
        case ast.AnnAssign(target=target, value=ast.expr() as value) if last_name(target):
            yield from ((target, one) for one in _alias(_key(target), value, calls))
        case ast.keyword(arg=str(name), value=value):
            found = _alias(name, value, calls)
            yield from ((node, replace(one, is_stored=False)) for one in found)
        case ast.ClassDef(name=name, bases=bases):
            made = any(isinstance(one, Function) and one.name == "__init__" for one in node.body)
            for base in bases:
                of, known = last_name(base), calls.is_of_library(base)
                yield node, Alias(_object(name), _object(of), of_library=known)
                if not made:
                    yield node, Alias(name, of, of_library=known)


def _alias(name: str, value: ast.expr, calls: Calls) -> Iterator[Alias]:
    match value:
        case ast.Name() | ast.Attribute():
            yield Alias(name, _key(value), of_library=calls.is_of_library(value))
        case ast.Call(args=[function, *filled]) if called_name(value) == "partial":
            known = calls.is_of_library(function)
            yield Alias(name, _key(function), len(filled), of_library=known)
        case ast.Call() if called_name(value):
            of = _object(called_name(value))
            yield Alias(name, of, of_library=calls.is_of_library(value))


def _plainly_made(kind: ast.ClassDef) -> Iterator[Body]:
    """A class that only keeps what it is given, as a data class does."""
    made = any(isinstance(one, Function) and one.name == "__init__" for one in kind.body)
    if not made and not kind.bases:
        yield Body(kind.name)


def _read(function: Function, owner: ast.AST, calls: Calls) -> Iterator[Body]:
    is_method = type(owner) is ast.ClassDef and not any(
        last_name(one) == "staticmethod" for one in function.decorator_list
    )
    parameters = function.args
    by_place = [one.arg for one in (*parameters.posonlyargs, *parameters.args)]
    rest = [one.arg for one in (parameters.vararg, parameters.kwarg) if one]
    of = {one: {one} for one in (*by_place, *rest, *(one.arg for one in parameters.kwonlyargs))}
    nodes = [*walk(function)]
    for node in nodes:
        for target, names in _taken_out(node):
            of.setdefault(target, set()).update(*(of[name] for name in names if name in of))
    roots = {root for node in nodes for root in calls.changed_in(node)}
    changes = frozenset(one for root in roots for one in of.get(root, ()))
    called = (node for node in nodes if isinstance(node, ast.Call))
    given = [one for call in called for one in calls.givens(call)]
    gives = frozenset((one, taker) for taker, value in given for one in of.get(root_of(value), ()))
    for name in _called_as(function, owner):
        left = by_place[1:] if is_method else by_place
        yield Body(name, tuple(left), frozenset(rest), changes, gives)


def _called_as(function: Function, owner: ast.AST) -> Iterator[str]:
    yield function.name
    if isinstance(owner, ast.ClassDef) and function.name in ("__call__", "forward"):
        yield _object(owner.name)
    elif isinstance(owner, ast.ClassDef) and function.name == "__init__":
        yield owner.name


def _taken_out(node: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """Names that are bound to parts of others."""
    match node:
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            pairs = _side_by_side(target, value)
        case ast.Assign(targets=[target], value=value) if root_of(value):
            pairs = [(target, value)]
        case _:
            return
    for part, value in pairs:
        names = {one.id for one in walk(value) if isinstance(one, ast.Name)}
        yield from ((one.id, names) for one in walk(part) if isinstance(one, ast.Name))


def _side_by_side(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What a loop binds to parts of what: with `zip` each to its own."""
    match target, value:
        case ast.Tuple(elts=parts), ast.Call(func=ast.Name(id="zip"), args=args):
            if len(parts) == len(args):
                return [*zip(parts, args, strict=True)]
    return [(target, value)]
