# SPDX-License-Identifier: Apache-2.0
"""Names and attributes whose value derives from a clock, a process or a host: they differ on all
machines, and nothing that is trained may depend on them.

A function that returns the time tells it to who calls it, an object that is given nothing else
holds it. What is given something else too is no such thing; nor is what is only made with it
(`conversions`), nor an attribute of that name in another class. In doubt it is none: at worst a
standby is refused that could have stood in.
"""

import ast
from collections.abc import Callable, Collection, Iterator

from trainmover.state.script.code import grammar
from trainmover.state.script.code.scopes import MODULE, File, Key, Scope, Source, scope_key
from trainmover.state.script.code.syntax import Function, called_name, last_name, walk
from trainmover.state.script.code.times.acting import acting
from trainmover.state.script.code.times.belonging import Belonging
from trainmover.state.script.code.times.changed_with import Change, changes
from trainmover.state.script.code.times.fed import FEEDS, kept_in
from trainmover.state.script.code.times.followed import Followed
from trainmover.state.script.code.times.guarded import asks_for_shadow
from trainmover.state.script.code.times.telling import Path, Telling, base, is_it, makes_object


class Clocks:
    """Of one file: into the scopes of `source`, and its `clocks`, `apart`, `fed`, `keeps`,
    `guarded`, `by_real`, `there`, `told`, `untold`, `holders` and `telling`.

    is_told: whether a function of another file, by its full name, returns the time
    is_acting: whether a class of another file changes other objects than its own: see `acting`
    """

    def __init__(
        self,
        file: File,
        source: Source,
        is_told: Callable[[str], bool],
        is_acting: Callable[[str], bool],
    ) -> None:
        self._file = file
        self._source = source
        self._is_acting = is_acting
        self._acting = acting(file.tree)
        key_of = {id(node): scope_key(node) for node, _ in file.functions}
        self._belonging = Belonging(file, source.scopes, key_of)
        self._telling = Telling(file, source, self._belonging, is_told)
        self._class_of = {id(source.scopes[key]): owner for key, owner, _ in file.bodies}
        self._changes = {key: [*changes(nodes)] for key, _, nodes in file.bodies}
        self._parameters, self._made_by = dict[str, list[str]](), dict[str, Key]()
        for name, parameters, made_by in grammar.callables(file.tree):
            self._parameters[name] = parameters
            if made_by is not None:
                self._made_by[name] = scope_key(made_by)
        self._untelling = {"get", "pop", "popleft", "popitem", "setdefault"}  # Containers' own.
        self._mixed: set[Path] = set()  # Names and attributes that only sometimes do.
        self._otherwise: set[Path] = set()  # Those of them that are given something else.
        self._fed_otherwise: set[str] = set()
        self._guarded_paths: set[Path] = set()
        self._apart: set[Path] = set()  # Those that are left out whatever they are given.
        self._given_time: set[Path] = set()  # Those of them that are given nothing but the time.
        self._from: dict[Path, set[int]] = {}  # Other scopes that they are known in.
        source.holders = grammar.holders(file.tree, file.bodies)

    def find(self) -> None:
        """Until nothing new is found: what derives from a clock makes others derive from it. What
        is given other values too is none, and nothing derives from it."""
        self._mixed |= self._beside()
        while True:
            self._derive()
            self._otherwise = self._stored_otherwise()
            followed = Followed(self._file, self._source, self._telling, self._guarded_paths)
            there, self._telling.there = self._telling.there, self._telling.there | followed.there
            mixed, untelling = self._otherwise | followed.sizes, self._return_otherwise()
            if mixed <= self._mixed and not untelling and there == self._telling.there:
                self._set_apart()
                self._set_there()
                self._source.telling = self._telling.functions - self._telling.parts.keys()
                return
            self._mixed |= mixed
            self._untelling |= untelling
            self._forget()

    def _beside(self) -> set[Path]:
        """Names that are given rows of the time and of what varies, whatever else they are given:
        `last = (1.0, now())` tells the time only if `last = (loss, now())` stands nowhere."""
        self._telling.rows_tell = False
        self._derive()
        self._telling.rows_tell = True
        found = set[Path]()
        for key, _, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for node in nodes:
                for target, value in grammar.stores_of(node):
                    path = grammar.path(target)
                    if (
                        path
                        and grammar.is_row(value)
                        and self._telling.parts_of(value, scope, path)
                    ):
                        found.add(self._telling.known(target, scope))
        self._forget()
        return found

    def _forget(self) -> None:
        self._source.clocks.clear()
        self._telling.forget()
        self._apart.clear()
        self._given_time.clear()
        self._source.told, self._source.untold = {}, {}
        for scope in self._source.scopes.values():
            scope.clocks.clear()

    def _set_apart(self) -> None:
        of = {id(scope): scope for scope in self._source.scopes.values()}
        for known in self._apart:
            for owner in (known[0], *self._from.get(known, ())):
                of.get(owner, self._source).apart.add(known[1])
        for known in self._given_time:
            for owner in (known[0], *self._from.get(known, ())):
                of.get(owner, self._source).fed.add(known[1])
        self._source.keeps = kept_in(self._file.tree, self._file.functions, self._tells_in)

    def _set_there(self) -> None:
        """Where a name is read in other scopes too, it is known in these. What is given something
        else beside times is compared as it is."""
        for owner, path in self._telling.there - self._otherwise:
            if path.startswith("."):
                self._source.there.add(path)
                continue
            for scope in self._source.scopes.values():
                if id(self._belonging.scope_of(path, scope)) == owner:
                    scope.there.add(path)

    def _tells_in(self, function: Function, node: ast.AST) -> bool:
        return self._telling.is_clock(node, self._source.scopes[scope_key(function)])

    def _derive(self) -> None:
        for _ in range(12):
            before, self._fed_otherwise = self._count(), self._given_otherwise()
            self._telling.ask_anew()
            for key, _, nodes in self._file.bodies:
                scope = self._source.scopes[key]
                for node in nodes:
                    self._clock(node, scope, key)
            self._fed()
            self._called_with()
            if self._count() == before:
                return

    def _called_with(self) -> None:
        """Parameters that are given nothing but the time, as the folder of a log: of functions, and
        of what is made of a class."""
        told: dict[tuple[str, str], list[bool]] = {}
        places = set[tuple[str, str]]()
        for key, _, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for node in nodes:
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    name = node.func.id
                    for parameter, value in grammar.arguments(node, self._parameters.get(name, [])):
                        told.setdefault((name, parameter), []).append(
                            self._telling.only(value, scope)
                        )
                        if value is not None and self._telling.is_place(value, scope):
                            places.add((name, parameter))
        for (name, parameter), each in told.items():
            made_by, place = self._made_by.get(name), (name, parameter) in places
            if all(each) and made_by is not None:
                self._note(parameter, self._source.scopes[made_by], place=place)
            elif all(each):
                self._note(f".{parameter}", self._source.scopes[MODULE], name, place=place)

    def _stored_otherwise(self) -> set[Path]:
        """Names and attributes that tell the time, and are given something else, too."""
        self._source.untold = {}
        found = set[Path]()
        for key, _, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for node in nodes:
                for target, value in grammar.all_stores_of(node):
                    known = self._telling.known(target, scope)
                    is_fed = known in self._given_time and grammar.is_made_or_taken(node, value)
                    if is_fed or known in self._guarded_paths or grammar.is_reset(node, value):
                        continue
                    if not self._telling.only(value, scope, known[1]) or makes_object(value):
                        found |= self._not_told(target, scope)
                for name, given in grammar.stored_by_words(node):
                    if not self._telling.only(given, scope):
                        self._source.untold.setdefault(name, set()).add("")
        found |= self._changed_otherwise()
        both = self._source.clocks & {f".{name}" for name in self._source.untold}
        return found | {(0, path) for path in both}

    def _not_told(self, target: ast.expr, scope: Scope) -> set[Path]:
        """What is given something else by this, and what that is a part of."""
        found = set[Path]()
        for one in (target, grammar.root(target)):
            known = self._telling.known(one, scope)
            path = known[1]
            if path.startswith("."):
                self._source.untold.setdefault(path[1:], set()).add(self._owner_of(one, scope))
            if path and (not path.startswith(".") or one is not target):
                found.add(known)
        return found

    def _owner_of(self, target: ast.expr, scope: Scope) -> str:
        """The class of whose object it is an attribute, as far as that is known."""
        held = grammar.root(target)
        is_own = isinstance(held, ast.Attribute) and last_name(held.value) in ("self", "cls")
        is_own = is_own and isinstance(held.value, ast.Name)  # type: ignore[attr-defined]
        return self._class_of.get(id(scope), "") if is_own else ""

    def _changed_otherwise(self) -> set[Path]:
        """What is changed in place with something else than the time: names, and attributes by the
        classes whose methods do so to their own object; also by a function that it is given to."""
        found = set[Path]()
        for key, one in ((key, one) for key, known in self._changes.items() for one in known):
            scope = self._source.scopes[key]
            if not self._is_change_with_time(one, scope):
                for holder in one.holders:
                    found |= self._not_told(holder, scope)
        while True:
            given = set(self._given_to_changing(found))
            if given <= found:
                return found
            found |= given

    def _is_change_with_time(self, change: Change, scope: Scope) -> bool:
        """Whether what is changed may tell nothing but the time after it, if it did before."""
        given = [one for one in change.given if grammar.varies(one) and not grammar.is_size(one)]
        if not given:
            return not change.anew and not any(map(grammar.varies, change.given))
        but = grammar.path(change.holders[0])
        return all(self._telling.only(one, scope, but) or is_it(one, but) for one in given)

    def _given_to_changing(self, changed: set[Path]) -> Iterator[Path]:
        """What is given to functions of the file as a parameter that they change so."""
        for key, _, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for node in nodes:
                for function in self._telling.named.get(called_name(node), ()):
                    within = id(self._source.scopes[scope_key(function)])
                    for parameter, value in grammar.given_by(node, function):  # type: ignore[arg-type]
                        if (within, parameter) in changed and grammar.path(value):
                            yield from self._not_told(value, scope)

    def _return_otherwise(self) -> set[str]:
        """Functions of which one tells the time, and another one of that name does not; and those
        that do so only at times."""
        found = set[str]()
        for (name, line), _, nodes in self._file.bodies:
            if name in self._telling.functions:
                scope = self._source.scopes[name, line]
                values = [one.value for one in nodes if isinstance(one, ast.Return) and one.value]
                others = [one for one in values if grammar.varies(one)]
                if not all(self._telling.tells(value, scope) for value in others or values):
                    found.add(name)
        return found

    def _count(self) -> int:
        scopes = sum(len(scope.clocks) for scope in self._source.scopes.values())
        parts = sum(map(len, self._telling.parts.values()))
        return scopes + len(self._source.clocks) + len(self._telling.functions) + parts

    def _clock(self, node: ast.AST, scope: Scope, key: Key) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assigned(target, value, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assigned(target, value, scope)
            case ast.NamedExpr(target=target, value=value):
                self._assigned(target, value, scope)
            case ast.AugAssign(target=target, value=value) if self._telling.only(value, scope):
                self._mark(target, scope, place=self._telling.is_place(value, scope))
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                self._assigned(target, value, scope)
            case ast.Return(value=ast.expr() as value) if key[0] not in self._untelling:
                if parts := self._telling.parts_of(value, scope):
                    self._telling.parts.setdefault(key[0], set()).update(parts)
                elif self._telling.tells(value, scope):
                    self._telling.functions.add(key[0])
                    if self._telling.is_place(value, scope):
                        self._telling.places.add((0, f"{key[0]}()"))
            case ast.If(test=test) if asks_for_shadow(test):
                for inner in walk(node):
                    if isinstance(inner, ast.Name | ast.Attribute) and isinstance(
                        inner.ctx, ast.Store
                    ):
                        self._guarded(inner, scope)

    def _assigned(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        but = grammar.path(target)
        both = isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)
        if both and len(target.elts) == len(value.elts):  # type: ignore[attr-defined]
            for one, its in zip(target.elts, value.elts, strict=True):  # type: ignore[attr-defined]
                self._assigned(one, its, scope)
        elif isinstance(target, ast.Tuple | ast.List) and self._telling.parts_of(value, scope):
            for one, its in grammar.pairs(target, value):
                self._assigned(one, its, scope)
        elif parts := self._telling.parts_of(value, scope, but):
            for part in parts if but else ():
                self._note(f"{but}[{part!r}]", scope, self._owner_of(target, scope))
        elif makes_object(value):
            name = called_name(value)
            for keyword in value.keywords:
                if keyword.arg and self._telling.tells(keyword.value, scope):
                    self._note(f".{keyword.arg}", scope, name if name[:1].isupper() else "")
        elif self._telling.tells(value, scope, but):
            self._mark(target, scope, place=self._telling.is_place(value, scope))

    def _guarded(self, target: ast.Name | ast.Attribute, scope: Scope) -> None:
        name = target.id if isinstance(target, ast.Name) else target.attr
        if name not in self._source.values and not self._acts(name):
            if isinstance(target, ast.Attribute):
                self._source.guarded.add(name)
            known = self._telling.known(target, scope)
            self._apart.add(known)
            self._guarded_paths.add(known)
            self._from.setdefault(known, set()).add(id(scope) if known[0] else 0)
            self._mark(target, scope)
        else:
            self._source.by_real.add(name)

    def _acts(self, name: str) -> bool:
        """Whether what is stored by that name is made of a class that changes other objects."""
        made_by = [
            one.func for one in self._telling.stored.get(name, []) if isinstance(one, ast.Call)
        ]
        return any(
            last_name(one) in self._acting or self._is_acting(self._file.dotted(one))
            for one in made_by
        )

    def _mark(self, target: ast.expr, scope: Scope, *, place: bool = False) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._mark(one, scope, place=place)
        elif isinstance(target, ast.Starred):
            self._mark(target.value, scope, place=place)
        elif path := grammar.path(target):
            self._note(path, scope, self._owner_of(target, scope), place=place)

    def _note(self, path: str, scope: Scope, owner: str = "", *, place: bool = False) -> None:
        """An attribute is known everywhere, with the class; a name in its scope, and in this."""
        known = self._telling.at(path, scope)
        if path.startswith("."):
            self._source.told.setdefault(path[1:], set()).add(owner)
        if place:
            self._telling.places.add(known)
        if known in self._mixed:
            return
        if path.startswith("."):
            self._source.clocks.add(path)
        else:
            self._belonging.scope_of(base(path), scope).clocks.add(path)
            scope.clocks.add(path)

    def _fed(self) -> None:
        """Objects that are given nothing but the time: `batch_time.update(time.time() - end)`."""
        fed: dict[Path, list[bool]] = {}
        by: dict[Path, list[tuple[ast.expr, Scope]]] = {}
        for key, _, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for call, path in _given_to_objects(nodes):
                if call.func.attr in FEEDS and path != "self":  # type: ignore[attr-defined]
                    known = self._telling.at(path, scope)
                    fed.setdefault(known, []).append(self._is_fed_time(call, scope))
                    by.setdefault(known, []).append((call.func.value, scope))  # type: ignore[attr-defined]
        for known, told in fed.items():
            if all(told) and known[1] not in self._fed_otherwise and known not in self._mixed:
                self._apart.add(known)
                self._given_time.add(known)
                for target, scope in by[known]:
                    self._from.setdefault(known, set()).add(id(scope) if known[0] else 0)
                    self._note(known[1], scope, self._owner_of(target, scope))

    def _is_fed_time(self, call: ast.Call, scope: Scope) -> bool:
        """Whether a method is given the time, and else how much it counts."""
        first, *others = grammar.given_to(call)
        tells = self._telling.tells(first, scope) and not self._telling.parts_of(first, scope)
        return tells and all(
            grammar.is_size(one) or self._telling.tells(one, scope) for one in others
        )

    def _given_otherwise(self) -> set[str]:
        """Objects that methods of the script's own are given something else, wherever that is."""
        return {
            path
            for key, _, nodes in self._file.bodies
            for call, path in _given_to_objects(nodes)
            if call.func.attr in self._telling.named  # type: ignore[attr-defined]
            and any(map(grammar.varies, grammar.given_to(call)))
            and not self._is_fed_time(call, self._source.scopes[key])
        }


def tells_in(source: Source, name: str, kinds: Collection[str], *, stays: bool) -> bool:
    """Whether an attribute tells the time in objects of these classes, though others may give other
    values to one of that name: a timer's total, beside a meter's.

    kinds: classes of the script's, none if the object is of none
    stays: whether it holds what no one can change in place, so that all that it is given is seen
    """
    told, untold = source.told.get(name, set()), source.untold.get(name, set())
    holders = source.holders.get(name, set()) - {""}
    if name in source.guarded:
        return f".{name}" in source.clocks
    if not kinds:
        others = holders - told
        is_theirs = stays or not others or ("" in told and len(others) == 1)
        return f".{name}" in source.clocks and is_theirs
    if "" in untold or not untold.isdisjoint(kinds):
        return False
    return not told.isdisjoint(kinds) or ("" in told and (stays or holders <= {*kinds}))


def _given_to_objects(nodes: list[ast.AST]) -> Iterator[tuple[ast.Call, str]]:
    """Calls of methods that are given something, each with the path of its object."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            path = grammar.path(node.func.value)
            if path and grammar.given_to(node):
                yield node, path
