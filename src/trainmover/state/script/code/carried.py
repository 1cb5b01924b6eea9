# SPDX-License-Identifier: Apache-2.0
"""Which attributes carry something past a fetch, and which are only of the round they are made in.

Many scripts keep what a step computes on an object: `self.fake = ...`, `self.loss = ...`. Whoever
reads it does so after the same step has written it, so it is worth nothing between two steps. An
attribute is *carried* if some code may read it before it is written again. Statements are followed
in their order, and calls into the functions of that name, whose `self` and arguments are what they
were called with: that one meter was reset says nothing of another.

Where the script stands nothing is written: behind the statement that fetches, and as each round of
a loop begins that is under way. A loop that it is not in is begun by what lies before it: a metric
that is reset there is worth nothing until then. What runs beside the script (generators, threads,
what is handed to others) may stand in any of its loops, and a generator behind any `yield`. If
nobody says where the script stands, it may stand in any loop, behind any, and behind any `next`.
"""

import ast
import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeGuard

from trainmover.state.script.code.asked_for import (
    Part,
    asked_by_name,
    asked_otherwise,
    path_of,
    replaced_in,
)
from trainmover.state.script.code.functions import OF_OBJECTS
from trainmover.state.script.code.grammar import (
    CONSTRUCTORS,
    given_to,
    is_special,
    own,
    stored_by_name,
)
from trainmover.state.script.code.syntax import (
    Function,
    called_name,
    children,
    last_name,
    walk,
)

_Parts = frozenset[Part]
_Summary = tuple[_Parts, _Parts]
"""Attributes that a function may read before it writes them, and those it surely writes."""
_NOTHING: _Parts = frozenset()
_Loop = ast.For | ast.AsyncFor | ast.While
_BESIDE = frozenset({"threading", "concurrent", "asyncio", "multiprocessing", "queue"})
_CACHES = frozenset({"cache", "lru_cache", "singledispatch", "singledispatchmethod"})
_DRAWS = frozenset(
    {"list", "tuple", "set", "dict", "sum", "min", "max", "any", "all", "sorted", "next", "run"}
    | {"enter_context"}
)
"""Functions that have a generator or a coroutine run that they are given."""
_CALL_AT_ONCE = frozenset(
    {"sorted", "sort", "min", "max", "reduce", "step", "nlargest", "nsmallest"}
)
"""Functions that call what they are given, and keep it no longer."""
_EXITS = frozenset({"__exit__", "__aexit__"})
_CALLING = sys.stdlib_module_names | {"torch", "torchvision", "numpy", "trainmover"}
"""Libraries whose decorators call what they are given."""
_DEEPEST = 16
"""Functions that call each other in a ring are followed so far."""
_FETCHES = frozenset({"next", "__next__"})


@lru_cache(maxsize=64)
def carried_attributes(
    files: tuple[ast.Module, ...], at: tuple[frozenset[int], ...] | None = None
) -> frozenset[str]:
    """By name, whatever object they belong to, of all files of a script together: what one stores
    another may read. at: lines where the script stands, in each of the files"""
    return frozenset(copy.copy(_reader_of(files)).carried(at))


@lru_cache(maxsize=8)
def _reader_of(files: tuple[ast.Module, ...]) -> "_Reader":
    return _Reader(files)


@dataclass(frozen=True)
class _Known:
    """A function of the file. own: names that it binds, but for parameters as they are given"""

    node: Function
    is_method: bool
    parameters: list[str]
    own: frozenset[str]


class _Reader:
    """What is so wherever the script stands; a copy of it follows the script from one place."""

    def __init__(self, files: tuple[ast.Module, ...]) -> None:
        self._files = files
        self._tree = tree = ast.Module([one for file in files for one in file.body], [])
        self._functions: dict[str, list[_Known]] = {}
        for node, is_method in _functions(tree, in_class=False):
            self._functions.setdefault(node.name, []).append(_known(node, is_method))
        self._swallows = _that_swallow(tree)
        self._is_swallowed = _is_kept(tree, self._swallows)
        self._foreign = _of_others(tree)
        self._drawn = {id(one) for one in _drawn(tree)}
        self._called = {name for node in walk(tree) if (name := called_name(node))}
        self._made_here = {*_made_here(tree)}
        self._replaced = replaced_in(tree) | self._wrapped(tree)
        self._nobody = {id(one) for one in _bound_inside(tree)}
        self._later = {id(one) for one in _run_later(tree)}
        self._computed = {name for name, known in self._functions.items() if _is_computed(known)}
        self._computed |= _worked_out(tree, self._functions)
        self._calls = _calls(self._functions)
        self._rebinds = _rebinds(self._functions, self._calls)
        self._shadowed = {id(one) for one in _shadowed(tree)}
        functions = {id(node.func) for node in walk(tree) if isinstance(node, ast.Call)}
        self._handed_out = {
            name
            for node in walk(tree)
            if id(node) not in functions and (name := last_name(node)) in self._functions
        }
        self._handed_out |= _called_by_name(tree) & self._functions.keys()
        self._turned = self._turned_unseen()
        self._beside = {id(one) for file in files if _runs_beside(file) for one in walk(file)}
        self._run_beside = _reached(self._calls, filter(self._may_stand_still, self._functions))

    def _begin(self, at: tuple[frozenset[int], ...] | None) -> None:
        self._at_any: bool = at is None  # Any loop may be under way.
        self._anywhere: bool = self._at_any
        self._stands = {
            id(one)
            for file, lines in zip(self._files, at or (), strict=bool(at))
            for one in _at(file, lines)
        }
        self._summaries: dict[str, _Summary] = {}
        self._cut_off: set[str] = set()  # Functions that were not followed where they were called.
        self._in_loops: dict[str, _Parts] = {}  # What the outer loops of a function read.
        self._under_way: list[str] = []
        self._loops = 0  # Around what is looked at, in its function.
        self._looped: _Parts = _NOTHING
        self._returned: list[_Parts] = []  # Written by each `return` of a function, and `yield`.
        self._left: bool = False  # The script may fetch where what is looked at has given a value.

    def carried(self, at: tuple[frozenset[int], ...] | None) -> set[str]:
        self._begin(at)
        for name in _callees_first(self._calls):
            self._summary(name)
        found: _Parts = _NOTHING
        for file in self._files:
            self._anywhere = self._at_any or id(file) in self._beside
            found |= self._block(file.body, _NOTHING)[0]
        self._anywhere, found = self._at_any, found | self._looped
        others = {*filter(self._is_called_by_others, self._functions)}
        for name in self._cut_off | others | self._called_by_nobody(others):
            found |= self._summary(name)[0]  # Nothing is written before.
        return {name for _, name in found} | asked_otherwise(self._tree)

    def _is_called_by_others(self, name: str) -> bool:
        """Whether something else may call it: Python itself, torch, or who was given it."""
        by_python = name == "forward" or is_special(name)
        return by_python or name not in self._called or name in self._handed_out

    def _turned_unseen(self) -> frozenset[str]:
        """Names and attributes that may stand for another object behind any statement: what no
        name calls gives them one, as an operator, a `with`, a callback or a layer does."""
        names = self._functions.keys() - CONSTRUCTORS
        others = [one for one in names if self._is_called_by_others(one) or self._is_set(one)]
        return frozenset[str]().union(*(self._rebinds[name] for name in others))

    def _is_set(self, name: str) -> bool:
        """Whether it is called as an attribute is stored to."""
        decorators = (one for known in self._functions[name] for one in known.node.decorator_list)
        return any(last_name(one) == "setter" for one in decorators)

    def _called_by_nobody(self, others: set[str]) -> set[str]:
        """What only calls itself, or each other: as `step` does, which calls that of its base."""
        at_top = {called_name(node) for node in own(self._tree)} & self._functions.keys()
        return self._functions.keys() - _reached(self._calls, at_top | others)

    # --- functions --------------------------------------------------------------------------------

    def _summary(self, name: str) -> _Summary:
        """Of all functions of that name together, in the words of the first one's parameters."""
        if name in self._summaries:
            return self._summaries[name]
        if name not in self._functions or self._under_way[-1:] == [name]:
            return _NOTHING, _NOTHING
        if name in self._under_way or len(self._under_way) >= _DEEPEST:
            self._cut_off.add(name)
            return _NOTHING, _NOTHING
        self._under_way.append(name)
        kept = self._loops, self._looped, self._anywhere, self._left
        self._anywhere = self._at_any or name in self._run_beside
        returned, self._loops, self._looped = self._returned, 0, _NOTHING
        each: list[_Summary] = []
        for one in self._functions[name]:
            self._returned, self._left = [], not _manages(one.node)
            read, written = self._block(one.node.body, _NOTHING)
            surely = written.intersection(*self._returned)
            if self._may_not_run(one.node):
                surely = _NOTHING
            each.append((_renamed(read, one), _renamed(surely, one)))
        self._in_loops[name], self._returned = self._looped, returned
        self._loops, self._looped, self._anywhere, self._left = kept
        self._under_way.pop()
        read = _NOTHING.union(*(one for one, _ in each))
        written = each[0][1].intersection(*(one for _, one in each[1:]))
        self._summaries[name] = read, written
        return read, written

    def _wrapped(self, tree: ast.Module) -> set[str]:
        """Functions in whose place what the script itself makes is put, of them or of others."""
        ours = self._functions.keys() | self._made_here | self._foreign
        found = set[str]()
        for name, value in _put_in_place(tree):
            if name in self._functions:
                calls = isinstance(value, ast.Call)
                if not calls or last_name(_root(value)) in ours or called_name(value) in ours:
                    found.add(name)
        return found

    def _may_stand_still(self, name: str) -> bool:
        """Whether a function of that name runs beside the script, or something else calls it."""
        each = [one.node for one in self._functions[name]]
        return name in self._handed_out or any(
            id(one) in self._beside or _yields(one) for one in each
        )

    def _may_not_run(self, function: Function) -> bool:
        """Whether something else decides if it is called: a cache, or a decorator of the script's,
        or of who knows whom; or another function is put in its place."""
        if function.name in self._replaced:
            return True
        names = {last_name(one) or called_name(one) for one in function.decorator_list}
        roots = {last_name(_root(one)) for one in function.decorator_list}
        plain = {last_name(one) for one in map(_called, function.decorator_list) if one is not None}
        deciding = self._functions.keys() | _CACHES
        known = names.isdisjoint(deciding) and roots.isdisjoint(self._foreign)
        return not (known and plain.isdisjoint(self._made_here))

    def _call(self, call: ast.Call, name: str, written: _Parts) -> _Summary:
        """What it reads that is not written by now, and what is then."""
        read, surely = self._summary(name)
        functions = self._functions.get(name, [])
        if id(call) not in self._drawn and any(_waits(one.node) for one in functions):
            surely = _NOTHING
        if id(call) in self._shadowed:
            surely = _NOTHING
        elif isinstance(call.func, ast.Attribute) and name in OF_OBJECTS:
            # It may be a tensor's own, or a list's: of the script's it is that object's.
            surely = frozenset(one for one in surely if one[0].partition(".")[0] == "0")
        names = _given(call, functions, self._path)
        if not self._loops:
            self._looped |= self._in_loops.get(name, _NOTHING)
        asked = _in_words_of(read, names) | asked_by_name(call)
        written = _without_any(written, self._rebinds.get(name, frozenset()))
        new = {one for one in _in_words_of(surely, names) if one[0]}
        for owner, attribute in new:
            written = _without(written, f"{owner}.{attribute}")
        if self._at_any and name in _FETCHES:
            written = _NOTHING
        return frozenset(one for one in asked if not one[0] or one not in written), written | new

    # --- statements -------------------------------------------------------------------------------

    def _block(self, body: Iterable[ast.stmt], written: _Parts) -> _Summary:
        read: _Parts = _NOTHING
        for statement in body:
            stands = self._stands_in(statement)
            simple = not isinstance(statement, _Loop | ast.If | ast.With | ast.Try | ast.Match)
            in_head = stands and not simple and not any(map(self._stands_in, _within(statement)))
            before = _NOTHING if in_head or (stands and simple) else written
            more, written = self._statement(statement, before)
            read |= more
            written = _NOTHING if stands and simple else _without_any(written, self._turned)
        return read, written

    def _stands_in(self, node: ast.stmt) -> bool:
        return id(node) in self._stands

    def _statement(self, node: ast.stmt, written: _Parts) -> _Summary:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._expressions(_head_of(node), written)
            case ast.ClassDef():
                read, written = self._expressions(_head_of(node), written)
                more, written = self._block(node.body, written)
                return read | more, written
            case ast.If():
                read, written = self._expression(node.test, written)
                one, after = self._block(node.body, written)
                other, otherwise = self._block(node.orelse, written)
                return read | one | other, after & otherwise
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(node, written)
            case ast.With() | ast.AsyncWith():
                read = _NOTHING
                for item in node.items:
                    more, written = self._expression(item.context_expr, written)
                    read |= more
                    if item.optional_vars is not None:
                        written = _bound(written, item.optional_vars)
                        written |= self._stored_in(item.optional_vars)
                more, after = self._block(node.body, written)
                managers = [item.context_expr for item in node.items]
                quiet = not self._swallows.isdisjoint(map(called_name, managers))
                quiet |= self._is_swallowed and any(map(path_of, managers))
                return read | more, written & after if quiet else after
            case ast.Match():
                read, written = self._expression(node.subject, written)
                cases = [self._case(one, _matched(written, one)) for one in node.cases]
                ends = [after for _, after in cases]
                if not any(_takes_all(one) for one in node.cases):
                    ends.append(written)
                return read.union(*(more for more, _ in cases)), ends[0].intersection(*ends)
            case ast.Return():
                read, written = self._expression(node, written)
                self._returned.append(written)
                return read, written
            case ast.Try():
                read, after = self._block(node.body, written)
                for handler in node.handlers:
                    read |= self._block(handler.body, _NOTHING)[0]
                more, after = self._block(node.orelse, after)
                start = after if not node.handlers else written & after
                last, _ = self._block(node.finalbody, written & after)
                return read | more | last, self._block(node.finalbody, start)[1]
            case ast.AugAssign(target=ast.Attribute() as target):
                read, written = self._expression(node.value, written)
                part = self._part(target)
                more = frozenset({part}) if not part[0] or part not in written else _NOTHING
                written = _without(written, ".".join(part))
                return read | more, written | ({part} if part[0] else _NOTHING)
        return self._expression(node, written)

    def _expressions(self, nodes: Iterable[ast.expr], written: _Parts) -> _Summary:
        read = _NOTHING
        for node in nodes:
            more, written = self._expression(node, written)
            read |= more
        return read, written

    def _case(self, case: ast.match_case, written: _Parts) -> _Summary:
        """What it compares with, what it asks besides, and what it does then."""
        asked = [one.value for one in ast.walk(case.pattern) if isinstance(one, ast.MatchValue)]
        asked += [] if case.guard is None else [case.guard]
        read, written = self._expressions(asked, written)
        more, after = self._block(case.body, written)
        return read | more, after

    def _loop(self, node: _Loop, written: _Parts) -> _Summary:
        under_way = self._anywhere or self._stands_in(node)
        head = node.test if isinstance(node, ast.While) else node.iter
        read, written = self._expression(head, _NOTHING if under_way else written)
        self._loops += 1
        begins, given = _NOTHING if under_way else written, _NOTHING
        if not isinstance(node, ast.While):
            begins, given = _bound(begins, node.target), self._stored_in(node.target)
        if begins:  # Of what was written before the loop a round may have lost some.
            begins &= self._block(node.body, begins | given)[1]
        inside, _ = self._block(node.body, begins | given)
        self._loops -= 1
        if under_way and not self._loops:
            self._looped |= inside
        written = _NOTHING if under_way else begins
        after, otherwise = self._block(node.orelse, written)
        breaks = any(isinstance(one, ast.Break) for one in walk(node))
        return read | inside | after, written & otherwise if breaks else otherwise

    def _expression(self, node: ast.AST, written: _Parts) -> _Summary:
        """One statement without others inside, or an expression: reads and calls, then stores."""
        read: _Parts = _NOTHING
        stored: list[ast.AST] = []
        for part, surely in _evaluated(node):
            if isinstance(part, ast.Attribute | ast.Name) and not isinstance(part.ctx, ast.Load):
                stored.append(part)
            elif isinstance(part, ast.Attribute):
                one = self._part(part)
                if not one[0] or one not in written or id(part) in self._later:
                    read |= {one}
            elif isinstance(part, ast.Call) and (name := called_name(part)):
                more, after = self._call(part, name, written)
                read, written = read | more, after if surely else written & after
                names = {given for _, given in stored_by_name(part) if given}
                written = _without_any(written, names)
            elif isinstance(part, ast.Yield | ast.YieldFrom):
                self._returned.append(written)
                written = _NOTHING if self._left else written
        for one_stored in stored:
            written = _without(written, path_of(one_stored))
        parts = [self._part(one) for one in stored if isinstance(one, ast.Attribute)]
        return read, written | {one for one in parts if one[0]}

    def _stored_in(self, target: ast.expr) -> _Parts:
        """By a loop as a round begins, by a `with`."""
        stored = (one for one in walk(target) if isinstance(one, ast.Attribute))
        parts = [self._part(one) for one in stored if isinstance(one.ctx, ast.Store)]
        return frozenset(one for one in parts if one[0])

    def _part(self, node: ast.Attribute) -> Part:
        return self._path(node.value), node.attr

    def _path(self, node: ast.AST) -> str:
        """ "" also for what may be another object each time: by a property, or as a comprehension
        or a lambda has the name for something else."""
        path = path_of(node)
        if id(_root(node)) in self._nobody or not self._computed.isdisjoint(path.split(".")[1:]):
            return ""
        return path


def _at(file: ast.Module, lines: frozenset[int]) -> Iterator[ast.stmt]:
    """Statements in which these lines are."""
    for node in walk(file) if lines else ():
        if isinstance(node, ast.stmt) and not isinstance(node, Function):
            last = node.end_lineno or node.lineno
            if any(node.lineno <= line <= last for line in lines):
                yield node


def _within(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Statements in it."""
    for node in walk(statement):
        if isinstance(node, ast.stmt) and node is not statement:
            yield node


# --- names ----------------------------------------------------------------------------------------


def _without(written: _Parts, path: str) -> _Parts:
    """Without what something else has now that has this name."""
    if not path or not written:
        return written
    return frozenset(one for one in written if one[0] != path and not one[0].startswith(f"{path}."))


def _without_any(written: _Parts, names: Set[str]) -> _Parts:
    """Without what may have been reached through these names, whatever they stand for by now."""
    if not names or not written:
        return written
    return frozenset(one for one in written if names.isdisjoint(one[0].split(".")))


def _bound(written: _Parts, target: ast.AST) -> _Parts:
    for node in walk(target):
        if isinstance(node, ast.Name | ast.Attribute):
            written = _without(written, path_of(node))
    return written


def _head_of(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.expr]:
    """What is read where it is defined: decorators, and defaults or bases."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(one.value for one in node.keywords)]
    by_name = [one for one in node.args.kw_defaults if one is not None]
    return [*node.decorator_list, *node.args.defaults, *by_name]


def _matched(written: _Parts, case: ast.match_case) -> _Parts:
    for node in walk(case.pattern):
        if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            written = _without(written, node.name)
    return written


def _renamed(parts: _Parts, function: _Known) -> _Parts:
    """Parameters by their number, as "0", so that functions of one name can be told together; what
    only the function itself has, by no name: a parameter that it binds anew, too."""
    numbers = {name: str(number) for number, name in enumerate(function.parameters)}
    numbers |= dict.fromkeys(function.own, "")
    return _in_words_of(parts, numbers)


def _given(
    call: ast.Call, functions: list[_Known], path: Callable[[ast.AST], str]
) -> dict[str, str]:
    """What the parameters are called where it is called, by their number."""
    if not functions:
        return {}
    one = functions[0]
    names = dict.fromkeys((str(n) for n in range(max(len(f.parameters) for f in functions))), "")
    if any((f.is_method, f.parameters) != (one.is_method, one.parameters) for f in functions):
        numbered = all(f.is_method == one.is_method for f in functions)
        if not numbered:
            return names
    first = 0
    if one.is_method and isinstance(call.func, ast.Attribute):
        names["0"], first = path(call.func.value), 1
    for number, argument in enumerate(call.args, first):
        if isinstance(argument, ast.Starred):
            break
        names[str(number)] = path(argument)
    for keyword in call.keywords:
        places = {f.parameters.index(keyword.arg) for f in functions if keyword.arg in f.parameters}
        if len(places) == 1:
            names[str(places.pop())] = path(keyword.value)
    return names


def _in_words_of(parts: _Parts, names: Mapping[str, str]) -> _Parts:
    found = set[Part]()
    for owner, attribute in parts:
        root, _, rest = owner.partition(".")
        if root not in names:
            found.add((owner, attribute))
            continue
        root = names[root]
        found.add((f"{root}.{rest}" if root and rest else root, attribute))
    return frozenset(found)


def _known(node: Function, is_method: bool) -> _Known:
    arguments = node.args
    plain = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    others = {one.arg for one in (arguments.vararg, arguments.kwarg) if one is not None}
    stored = {
        one.id for one in walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    declared = {
        name
        for one in walk(node)
        if isinstance(one, ast.Global | ast.Nonlocal)
        for name in one.names
    }
    static = any(last_name(one) == "staticmethod" for one in node.decorator_list)
    return _Known(node, is_method and not static, plain, frozenset((stored | others) - declared))


def _functions(node: ast.AST, *, in_class: bool) -> Iterator[tuple[Function, bool]]:
    for child in children(node):
        if isinstance(child, Function):
            yield child, in_class
            yield from _functions(child, in_class=False)
        else:
            yield from _functions(child, in_class=isinstance(child, ast.ClassDef))


def _yields(function: Function) -> bool:
    """Whether it may stand still while something else fetches."""
    if isinstance(function, ast.AsyncFunctionDef):
        return True
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for one in walk(function))


def _waits(function: Function) -> bool:
    """Whether nothing of it runs as it is called, but as somebody draws from it, or awaits it."""
    if isinstance(function, ast.AsyncFunctionDef):
        return True
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for one in own(function))


def _manages(function: Function) -> bool:
    """Whether it is what a `with` runs: it gives a value for the lines inside of that."""
    names = {last_name(one) for one in function.decorator_list}
    return not names.isdisjoint({"contextmanager", "asynccontextmanager"})


def _drawn(tree: ast.Module) -> Iterator[ast.AST]:
    """Expressions of which the value is drawn from where it is made, or awaited, or entered."""
    for node in walk(tree):
        match node:
            case ast.For(iter=value) | ast.AsyncFor(iter=value) | ast.comprehension(iter=value):
                yield value
            case ast.Await(value=value) | ast.YieldFrom(value=value):
                yield value
            case ast.withitem(context_expr=value):
                yield value
            case ast.Call(args=values) if called_name(node) in _DRAWS:
                yield from values


def _that_swallow(tree: ast.Module) -> set[str]:
    """Names by which context managers are made that may let no exception pass: the script's own,
    those derived from such, functions that give such, and Python's."""
    nodes, found = [*walk(tree)], {"suppress"}
    while True:
        more = {name for node in nodes for name in _swallowing(node, found)}
        if more <= found:
            return found
        found |= more


def _swallowing(node: ast.AST, known: set[str]) -> Iterator[str]:
    match node:
        case ast.ImportFrom(names=names):
            yield from (one.asname for one in names if one.asname and one.name in known)
        case ast.ClassDef():
            exits = [one for one in node.body if getattr(one, "name", "") in _EXITS]
            returned = [one for end in exits for one in walk(end) if isinstance(one, ast.Return)]
            own = any(one.value and not _is_false(one.value) for one in returned)
            if own or not known.isdisjoint(map(last_name, node.bases)):
                yield node.name
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            tries = [one for one in walk(node) if isinstance(one, ast.Try) and one.handlers]
            bodies = [ast.Module(one.body, []) for one in tries]
            bodies += [ast.Module(one.body, []) for one in walk(node) if _is_quiet(one, known)]
            ends = [one.value for one in walk(node) if isinstance(one, ast.Return)]
            gives = any(one and called_name(one) in known for one in ends)
            if gives or any(isinstance(one, ast.Yield) for body in bodies for one in walk(body)):
                yield node.name
        case ast.Call(args=given) if called_name(node) == "enter_context":
            if any(called_name(one) in known for one in given):
                yield from ("ExitStack", "AsyncExitStack")


def _is_quiet(node: ast.AST, known: set[str]) -> TypeGuard[ast.With]:
    return isinstance(node, ast.With) and not known.isdisjoint(
        called_name(item.context_expr) for item in node.items
    )


def _is_kept(tree: ast.Module, swallows: set[str]) -> bool:
    """Whether such a one is made elsewhere than where it is entered, so that any name may be it."""
    entered = {
        id(item.context_expr)
        for one in walk(tree)
        if isinstance(one, ast.With | ast.AsyncWith)
        for item in one.items
    }
    made = (one for one in walk(tree) if called_name(one) in swallows)
    return any(id(one) not in entered for one in made)


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _of_others(tree: ast.Module) -> set[str]:
    """Names that are imported, but not from Python's own library or torch: from the script's other
    files, or from a library that nobody knows."""
    found = set[str]()
    for node in walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            inside = getattr(node, "module", None) or ""
            level = getattr(node, "level", 0)
            for one in node.names:
                root = (inside or one.name).partition(".")[0]
                if level or root not in _CALLING:
                    found.add(one.asname or one.name.partition(".")[0])
    return found


def _root(node: ast.AST) -> ast.AST:
    """What a path, or a decorator, begins with."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node


def _called(decorator: ast.expr) -> ast.Name | None:
    """The name of a decorator that is none's attribute: `every` of @every and of @every(6)."""
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return name if isinstance(name, ast.Name) else None


def _made_here(tree: ast.Module) -> Iterator[str]:
    """Classes, and names that something is stored to."""
    for node in walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _put_in_place(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """What is stored to by a name that functions may have: of attributes; of the top and of
    classes, where no function's own variables are meant."""
    for node in walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                yield from ((one.attr, value) for one in targets if isinstance(one, ast.Attribute))
            case ast.Call(args=[_, ast.Constant(value=str(name)), value]):
                if called_name(node) == "setattr":
                    yield name, value
            case ast.ClassDef(body=body):
                yield from _assigned(body)
    yield from _assigned(tree.body)


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for one in body:
        if isinstance(one, ast.Assign):
            names = (target for target in one.targets if isinstance(target, ast.Name))
            yield from ((target.id, one.value) for target in names)


def _shadowed(tree: ast.Module) -> Iterator[ast.Call]:
    """Calls by a name that the function around has been given, or has for something of its own."""
    for function, is_method in _functions(tree, in_class=False):
        known = _known(function, is_method)
        inner = {one.name for one in own(function) if isinstance(one, Function)}
        names = {*known.parameters, *known.own} - inner
        for node in walk(function):
            is_named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if is_named and node.func.id in names:  # type: ignore[attr-defined]
                yield node  # type: ignore[misc]


def _called_by_name(tree: ast.Module) -> set[str]:
    """As by methodcaller("measure"), getattr(self, "measure")()."""
    return {
        one.value
        for node in walk(tree)
        if isinstance(node, ast.Call) and called_name(node) in ("methodcaller", "getattr")
        for one in node.args
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }


def _bound_inside(tree: ast.Module) -> Iterator[ast.Name]:
    """Names in comprehensions and lambdas that stand for what these have given them."""
    for node in walk(tree):
        bound = set[str]()
        match node:
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                targets = [one for part in node.generators for one in walk(part.target)]
                bound = {one.id for one in targets if isinstance(one, ast.Name)}
            case ast.Lambda(args=arguments):
                bound = {one.arg for one in walk(arguments) if isinstance(one, ast.arg)}
        for one in walk(node) if bound else ():
            if isinstance(one, ast.Name) and one.id in bound:
                yield one


def _run_later(tree: ast.Module) -> Iterator[ast.AST]:
    """What is in lambdas, but for those that are called where they are made."""
    at_once = {
        id(one)
        for node in walk(tree)
        if isinstance(node, ast.Call) and called_name(node) in _CALL_AT_ONCE
        for one in given_to(node)
    }
    for node in walk(tree):
        if isinstance(node, ast.Lambda) and id(node) not in at_once:
            yield from walk(node.body)


def _is_computed(functions: list[_Known]) -> bool:
    """Whether an attribute of that name is worked out where it is read."""
    decorators = [last_name(one) for known in functions for one in known.node.decorator_list]
    return any(name.endswith("property") for name in decorators)


def _worked_out(tree: ast.Module, functions: Mapping[str, list[_Known]]) -> set[str]:
    """Attributes that a descriptor of the script's gives, or its `__getattr__`."""
    giving = {
        node.name
        for node in walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(getattr(one, "name", "") == "__get__" for one in node.body)
    }
    found = {
        name
        for node in walk(tree)
        if isinstance(node, ast.ClassDef)
        for name, value in _assigned(node.body)
        if called_name(value) in giving
    }
    if not functions.keys().isdisjoint(("__getattr__", "__getattribute__")):
        attributes = [one for one in walk(tree) if isinstance(one, ast.Attribute)]
        stored = {one.attr for one in attributes if not isinstance(one.ctx, ast.Load)}
        found |= {one.attr for one in attributes} - stored - functions.keys()
    return found


def _calls(functions: Mapping[str, list[_Known]]) -> dict[str, set[str]]:
    """By name of a function, those that it calls."""
    return {
        name: {called_name(node) for known in each for node in walk(known.node)} & functions.keys()
        for name, each in functions.items()
    }


def _reached(calls: Mapping[str, set[str]], first: Iterable[str]) -> set[str]:
    """These, and all that they call, and so on."""
    found, waiting = set[str](), [*first]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += calls[name]
    return found


def _callees_first(calls: Mapping[str, set[str]]) -> list[str]:
    """Every function behind those that it calls, as far as they do not call each other."""
    found: dict[str, None] = {}
    begun = set[str]()
    for root in calls:
        waiting = [(root, False)]
        while waiting:
            name, is_over = waiting.pop()
            if is_over:
                found[name] = None
            elif name not in begun:
                begun.add(name)
                waiting.append((name, True))
                waiting += [(one, False) for one in sorted(calls[name] - begun)]
    return [*found]


def _rebinds(
    functions: Mapping[str, list[_Known]], calls: Mapping[str, set[str]]
) -> dict[str, frozenset[str]]:
    """By name of a function, names and attributes to which it may give other objects, or one that
    it calls."""
    found = {
        name: frozenset(one for known in each for one in _stored_in(known.node))
        for name, each in functions.items()
    }
    while True:
        more = {name: found[name].union(*(found[one] for one in calls[name])) for name in found}
        if more == found:
            return found
        found = more


def _stored_in(function: Function) -> Iterator[str]:
    """Attributes, and names that are not its own."""
    for node in walk(function):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        yield from (name for _, name in stored_by_name(node) if name)


def _runs_beside(tree: ast.Module) -> bool:
    for node in walk(tree):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        if _BESIDE & {name.partition(".")[0] for name in names}:
            return True
    return False


def _evaluated(node: ast.AST, surely: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """What is below, inner parts before those around them, as they are evaluated; and whether each
    surely is: not what is behind an `and`, in a choice, in a comprehension or in a lambda."""
    always = _always(node)
    for child in children(node):
        if not isinstance(child, Function):
            known = not always or any(child is one for one in always)
            yield from _evaluated(child, surely and known)
    yield node, surely


def _always(node: ast.AST) -> tuple[ast.AST, ...]:
    """The only parts of it that are evaluated in any case; (): all are."""
    match node:
        case ast.BoolOp(values=[first, *_]) | ast.IfExp(test=first):
            return (first,)
        case ast.Compare(left=first, comparators=[second, _, *_]):
            return first, second
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return (node.generators[0],)
        case ast.comprehension(iter=iterable):
            return (iterable,)
        case ast.Lambda(args=arguments):
            return (arguments,)
    return ()


def _takes_all(case: ast.match_case) -> bool:
    is_any = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
    return is_any and case.guard is None
