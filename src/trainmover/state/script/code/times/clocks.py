"""Names and attributes whose value derives from a clock, a process or a host: they differ on all
machines, and nothing that is trained may depend on them.

A function that returns the time tells it to who calls it, an object that is given nothing else
holds it. What is given something else too is no such thing; nor is what is only made with it
(`conversions`), nor an attribute of that name in another class. In doubt it is none: at worst a
standby is refused that could have stood in.
"""

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TypeGuard

from trainmover.state.script.code import grammar
from trainmover.state.script.code.changing import root_of
from trainmover.state.script.code.functions import KNOWN, OF_OBJECTS
from trainmover.state.script.code.scopes import MODULE, File, Key, Scope, Source, scope_key
from trainmover.state.script.code.syntax import (
    Function,
    called_name,
    children,
    last_name,
    walk,
)
from trainmover.state.script.code.times.acting import acting
from trainmover.state.script.code.times.belonging import Belonging, Within
from trainmover.state.script.code.times.changed_with import Change, changes
from trainmover.state.script.code.times.conversions import converted, converts, is_text, measures
from trainmover.state.script.code.times.counted import counted
from trainmover.state.script.code.times.fed import FEEDS, kept_in
from trainmover.state.script.code.times.guarded import asks_for_shadow
from trainmover.state.script.code.times.whether import asks_whether, is_answer, paths_in

_CLOCK_MODULES = frozenset(
    {"time", "datetime", "timeit", "uuid", "socket", "platform", "getpass", "tempfile", "psutil"}
    | {"resource", "secrets", "pwd"}
)
_CLOCK_CALLS = frozenset(
    {"os.getpid", "os.getppid", "os.uname", "os.urandom", "os.times"}
    | {"os.getloadavg", "os.getlogin", "threading.get_ident", "shutil.disk_usage", "id"}
    | {"os.path.getmtime", "os.path.getctime", "os.path.getatime"}
)
_TIMELESS = frozenset(
    {"timedelta", "strptime", "fromisoformat", "fromtimestamp", "fromordinal", "combine", "replace"}
    | {"date", "datetime", "timezone", "fromisocalendar", "UUID", "uuid3", "uuid5", "struct_time"}
    | {"utcfromtimestamp", "time", "mktime", "gmtime", "strftime", "localtime", "ctime", "asctime"}
)
"""Functions of these that give what they are given in another form; of some with no argument that
is the time."""
_TIMELESS_ALONE = frozenset({"timedelta", "SpooledTemporaryFile", "cpu_count"})
"""Of these, what is no time without an argument either."""
_PLACE_MODULES = frozenset({"socket", "platform", "getpass", "tempfile", "pwd"})
_PLACE_CALLS = frozenset({"os.uname", "os.getlogin"})
_CLOCK_METHODS = frozenset(
    {"elapsed_time", "memory_allocated", "max_memory_allocated", "memory_reserved"}
    | {"max_memory_reserved", "memory_stats", "mem_get_info"}
)
"""Where they are called: an attribute or a column may have such a name, too."""
_CLOCK_ATTRIBUTES = frozenset(
    {"is_shadow"}
    | {"st_mtime", "st_ctime", "st_atime", "st_mtime_ns", "st_ctime_ns", "st_atime_ns", "st_ino"}
)
_MIXED = (ast.Tuple, ast.List, ast.Dict, ast.Call)
_WITH_NAMES = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp | ast.Lambda
_CHOOSE = frozenset({"min", "max"})
_LOOKS_UP = frozenset({"get", "pop", "setdefault"})
_READS = frozenset(
    {"read", "readline", "readlines", "read_text", "read_bytes", "load", "loadtxt", "genfromtxt"}
    | {"fromfile", "read_csv", "getsize", "stat", "tell", "exists", "isfile", "isdir", "is_file"}
    | {"is_dir", "listdir"}
)
"""What lies in a file or folder follows from nothing in its name."""
_LISTS = frozenset({"glob", "rglob", "iglob", "iterdir", "scandir", "walk"})
_CONTAINERS = ast.List | ast.Set | ast.Dict | ast.ListComp | ast.SetComp | ast.DictComp
_MAKE_CONTAINERS = frozenset({"list", "set", "dict", "deque", "defaultdict", "OrderedDict"})
_Path = tuple[int, str]
"""A name with the id of its scope, an attribute with 0."""


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
        self._is_told = is_told
        self._is_acting = is_acting
        self._acting = acting(file.tree)
        self._named: dict[str, list[Function]] = {}
        for node, _ in file.functions:
            self._named.setdefault(node.name, []).append(node)
        self._written = self._named.keys()
        key_of = {id(node): scope_key(node) for node, _ in file.functions}
        self._belonging = Belonging(file, source.scopes, key_of)
        self._nodes = {key: nodes for key, _, nodes in file.bodies}
        self._class_of = {id(source.scopes[key]): owner for key, owner, _ in file.bodies}
        self._changes = {key: [*changes(nodes)] for key, _, nodes in file.bodies}
        self._passing: dict[tuple[str, bool], bool] = {}  # Functions that give on the time.
        self._places: set[_Path] = set()  # What tells the machine, as text.
        self._owners: dict[str, set[str]] = {}  # Classes with a method of that name.
        for node, owner in file.functions:
            self._owners.setdefault(node.name, set()).add(owner)
        self._stored: dict[str, list[ast.expr]] = {}  # What is stored by a name, wherever.
        self._records = {*grammar.records(file.tree)}
        self._kept = set[str]()  # Attributes that are stored to.
        for one in walk(file.tree):
            for target, value in grammar.stores_of(one):
                self._stored.setdefault(last_name(target), []).append(value)
            if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load):
                self._kept.add(one.attr)
        self._parameters, self._made_by = dict[str, list[str]](), dict[str, Key]()
        for name, parameters, made_by in grammar.callables(file.tree):
            self._parameters[name] = parameters
            if made_by is not None:
                self._made_by[name] = scope_key(made_by)
        self._telling: set[str] = set()  # Functions that return the time.
        self._parts: dict[str, set[object]] = {}  # Those of which a part of the result is one.
        self._untelling = {"get", "pop", "popleft", "popitem", "setdefault"}  # Containers' own.
        self._mixed: set[_Path] = set()  # Names and attributes that only sometimes do.
        self._otherwise: set[_Path] = set()  # Those of them that are given something else.
        self._there: set[_Path] = set()  # What counts by being there, or by how much there is.
        self._fed_otherwise: set[str] = set()
        self._rows_tell = True  # Also those that have constants beside the time.
        self._guarded_paths: set[_Path] = set()
        self._apart: set[_Path] = set()  # Those that are left out whatever they are given.
        self._given_time: set[_Path] = set()  # Those of them that are given nothing but the time.
        self._from: dict[_Path, set[int]] = {}  # Other scopes that they are known in.
        source.holders = grammar.holders(file.tree, file.bodies)

    def find(self) -> None:
        """Until nothing new is found: what derives from a clock makes others derive from it. What
        is given other values too is none, and nothing derives from it."""
        self._mixed |= self._beside()
        while True:
            self._derive()
            there, self._otherwise = {*self._there}, self._stored_otherwise()
            mixed, untelling = self._otherwise | self._counted(), self._return_otherwise()
            if mixed <= self._mixed and not untelling and there == self._there:
                self._set_apart()
                self._set_there()
                self._source.telling = self._telling - self._parts.keys()
                return
            self._mixed |= mixed
            self._untelling |= untelling
            self._forget()

    def _beside(self) -> set[_Path]:
        """Names that are given rows of the time and of what varies, whatever else they are given:
        `last = (1.0, now())` tells the time only if `last = (loss, now())` stands nowhere."""
        self._rows_tell = False
        self._derive()
        self._rows_tell = True
        found = set[_Path]()
        for key, _, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for node in nodes:
                for target, value in grammar.stores_of(node):
                    path = grammar.path(target)
                    if path and grammar.is_row(value) and self._parts_of(value, scope, path):
                        found.add(self._known(target, scope))
        self._forget()
        return found

    def _forget(self) -> None:
        self._source.clocks.clear()
        for known in (self._telling, self._parts, self._apart, self._given_time, self._places):
            known.clear()
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
        for owner, path in self._there - self._otherwise:
            if path.startswith("."):
                self._source.there.add(path)
                continue
            for scope in self._source.scopes.values():
                if id(self._belonging.scope_of(path, scope)) == owner:
                    scope.there.add(path)

    def _tells_in(self, function: Function, node: ast.AST) -> bool:
        return self._is_clock(node, self._source.scopes[scope_key(function)])

    def _derive(self) -> None:
        for _ in range(12):
            before, self._fed_otherwise = self._count(), self._given_otherwise()
            self._passing.clear()
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
                        told.setdefault((name, parameter), []).append(self._only(value, scope))
                        if value is not None and self._is_place(value, scope):
                            places.add((name, parameter))
        for (name, parameter), each in told.items():
            made_by, place = self._made_by.get(name), (name, parameter) in places
            if all(each) and made_by is not None:
                self._note(parameter, self._source.scopes[made_by], place=place)
            elif all(each):
                self._note(f".{parameter}", self._source.scopes[MODULE], name, place=place)

    def _only(self, value: ast.expr | None, scope: Scope, but: str = "") -> bool:
        """Whether it tells the time, and nothing else."""
        if value is None or not self._tells(value, scope, but):
            return False
        return not self._parts_of(value, scope, but)

    def _stored_otherwise(self) -> set[_Path]:
        """Names and attributes that tell the time, and are given something else, too."""
        self._source.untold = {}
        found = set[_Path]()
        for key, _, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for node in nodes:
                for target, value in _all_stores_of(node):
                    known = self._known(target, scope)
                    is_fed = known in self._given_time and grammar.is_made_or_taken(node, value)
                    if is_fed or known in self._guarded_paths or grammar.is_reset(node, value):
                        continue
                    if not self._only(value, scope, known[1]) or _makes_object(value):
                        found |= self._not_told(target, scope)
                for name, given in grammar.stored_by_words(node):
                    if not self._only(given, scope):
                        self._source.untold.setdefault(name, set()).add("")
        found |= self._changed_otherwise()
        both = self._source.clocks & {f".{name}" for name in self._source.untold}
        return found | {(0, path) for path in both}

    def _not_told(self, target: ast.expr, scope: Scope) -> set[_Path]:
        """What is given something else by this, and what that is a part of."""
        found = set[_Path]()
        for one in (target, grammar.root(target)):
            known = self._known(one, scope)
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

    def _counted(self) -> set[_Path]:
        """Lists of times of which the length counts. What counts by being there is noted."""
        found, whether = set[_Path](), set[_Path]()
        named = Counter(node.name for node, _ in self._file.functions)
        known = {node.name: node for node, _ in self._file.functions if named[node.name] == 1}
        bodies = [self._file.tree.body, *(node.body for node, _ in self._file.functions)]
        for (key, _, nodes), body in zip(self._file.bodies, bodies, strict=True):
            scope = self._source.scopes[key]
            if any(self._is_time(path, scope) for one in nodes for path in _read_as(one)):
                asked = counted(body, partial(self._tells, scope=scope), known)
                found |= self._of_times(asked.sizes, scope)
                whether |= self._of_times(asked.whether, scope)
        whether = {one for one in whether if not self._is_answer(one)}
        found, whether = self._come_from(found), self._come_from(whether)
        whether -= self._guarded_paths
        found |= {one for one in whether if self._is_container(one)}
        self._there |= found | whether
        return {one for one in found if not one[1].endswith("()")}

    def _of_times(self, paths: Collection[str], scope: Scope) -> set[_Path]:
        return {self._at(path, scope) for path in paths if self._is_time(path, scope)}

    def _is_time(self, path: str, scope: Scope) -> bool:
        """Whether it is known to tell the time: a name, an attribute, what a function returns."""
        if path.endswith("()"):
            return path[:-2] in self._telling
        return self._is_known(path, scope)

    def _come_from(self, found: set[_Path]) -> set[_Path]:
        """These, and what they are given, by a store, a return, or a call: a name for the same."""
        found = {*found}
        while True:
            new = {*self._given_for(found)} - found
            if not new:
                return found
            found |= new

    def _given_for(self, found: set[_Path]) -> Iterator[_Path]:
        for key, _, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for node in nodes:
                values = [
                    value
                    for target, value in _all_stores_of(node)
                    if self._known(target, scope) in found and not isinstance(node, ast.AugAssign)
                ]
                if isinstance(node, ast.Return) and node.value is not None:
                    values += [node.value] if (0, f"{key[0]}()") in found else []
                for function in self._named.get(called_name(node), ()):
                    within = id(self._source.scopes[scope_key(function)])
                    given = _arguments(node, function)  # type: ignore[arg-type]
                    values += [value for name, value in given if (within, name) in found]
                for value in values:
                    yield from self._of_times({*paths_in(value)}, scope)

    def _is_container(self, known: _Path) -> bool:
        """Whether it holds times, and is none itself."""
        stored = self._stored.get(known[1].lstrip("."), [])
        return any(
            isinstance(one, _CONTAINERS) or called_name(one) in _MAKE_CONTAINERS for one in stored
        )

    def _is_answer(self, known: _Path) -> bool:
        """Whether it is true or false, by what time it is."""
        return any(map(is_answer, self._stored.get(known[1].lstrip("."), [])))

    def _is_known(self, path: str, scope: Scope) -> bool:
        if path.startswith("."):
            return path in self._source.clocks
        return path in self._belonging.scope_of(_base(path), scope).clocks

    def _known(self, target: ast.expr, scope: Scope) -> _Path:
        return self._at(grammar.path(target), scope)

    def _at(self, path: str, scope: Scope) -> _Path:
        if path.startswith(".") or path.endswith("()"):
            return 0, path
        return id(self._belonging.scope_of(_base(path), scope)), path

    def _changed_otherwise(self) -> set[_Path]:
        """What is changed in place with something else than the time: names, and attributes by the
        classes whose methods do so to their own object; also by a function that it is given to."""
        found = set[_Path]()
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
        return all(self._only(one, scope, but) or _is(one, but) for one in given)

    def _given_to_changing(self, changed: set[_Path]) -> Iterator[_Path]:
        """What is given to functions of the file as a parameter that they change so."""
        for key, _, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for node in nodes:
                for function in self._named.get(called_name(node), ()):
                    within = id(self._source.scopes[scope_key(function)])
                    for parameter, value in _arguments(node, function):  # type: ignore[arg-type]
                        if (within, parameter) in changed and grammar.path(value):
                            yield from self._not_told(value, scope)

    def _return_otherwise(self) -> set[str]:
        """Functions of which one tells the time, and another one of that name does not; and those
        that do so only at times."""
        found = set[str]()
        for (name, line), _, nodes in self._file.bodies:
            if name in self._telling:
                scope = self._source.scopes[name, line]
                values = [one.value for one in nodes if isinstance(one, ast.Return) and one.value]
                others = [one for one in values if grammar.varies(one)]
                if not all(self._tells(value, scope) for value in others or values):
                    found.add(name)
        return found

    def _count(self) -> int:
        scopes = sum(len(scope.clocks) for scope in self._source.scopes.values())
        parts = sum(map(len, self._parts.values()))
        return scopes + len(self._source.clocks) + len(self._telling) + parts

    def _clock(self, node: ast.AST, scope: Scope, key: Key) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assigned(target, value, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assigned(target, value, scope)
            case ast.NamedExpr(target=target, value=value):
                self._assigned(target, value, scope)
            case ast.AugAssign(target=target, value=value) if self._only(value, scope):
                self._mark(target, scope, place=self._is_place(value, scope))
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                self._assigned(target, value, scope)
            case ast.Return(value=ast.expr() as value) if key[0] not in self._untelling:
                if parts := self._parts_of(value, scope):
                    self._parts.setdefault(key[0], set()).update(parts)
                elif self._tells(value, scope):
                    self._telling.add(key[0])
                    if self._is_place(value, scope):
                        self._places.add((0, f"{key[0]}()"))
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
        elif isinstance(target, ast.Tuple | ast.List) and self._parts_of(value, scope):
            for one, its in grammar.pairs(target, value):
                self._assigned(one, its, scope)
        elif parts := self._parts_of(value, scope, but):
            for part in parts if but else ():
                self._note(f"{but}[{part!r}]", scope, self._owner_of(target, scope))
        elif _makes_object(value):
            name = called_name(value)
            for keyword in value.keywords:
                if keyword.arg and self._tells(keyword.value, scope):
                    self._note(f".{keyword.arg}", scope, name if name[:1].isupper() else "")
        elif self._tells(value, scope, but):
            self._mark(target, scope, place=self._is_place(value, scope))

    def _guarded(self, target: ast.Name | ast.Attribute, scope: Scope) -> None:
        name = target.id if isinstance(target, ast.Name) else target.attr
        if name not in self._source.values and not self._acts(name):
            if isinstance(target, ast.Attribute):
                self._source.guarded.add(name)
            known = self._known(target, scope)
            self._apart.add(known)
            self._guarded_paths.add(known)
            self._from.setdefault(known, set()).add(id(scope) if known[0] else 0)
            self._mark(target, scope)
        else:
            self._source.by_real.add(name)

    def _acts(self, name: str) -> bool:
        """Whether what is stored by that name is made of a class that changes other objects."""
        made_by = [one.func for one in self._stored.get(name, []) if isinstance(one, ast.Call)]
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
        known = self._at(path, scope)
        if path.startswith("."):
            self._source.told.setdefault(path[1:], set()).add(owner)
        if place:
            self._places.add(known)
        if known in self._mixed:
            return
        if path.startswith("."):
            self._source.clocks.add(path)
        else:
            self._belonging.scope_of(_base(path), scope).clocks.add(path)
            scope.clocks.add(path)

    def _fed(self) -> None:
        """Objects that are given nothing but the time: `batch_time.update(time.time() - end)`."""
        fed: dict[_Path, list[bool]] = {}
        by: dict[_Path, list[tuple[ast.expr, Scope]]] = {}
        for key, _, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for call, path in _given_to_objects(nodes):
                if call.func.attr in FEEDS and path != "self":  # type: ignore[attr-defined]
                    known = self._at(path, scope)
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
        tells = self._tells(first, scope) and not self._parts_of(first, scope)
        return tells and all(grammar.is_size(one) or self._tells(one, scope) for one in others)

    def _given_otherwise(self) -> set[str]:
        """Objects that methods of the script's own are given something else, wherever that is."""
        return {
            path
            for key, _, nodes in self._file.bodies
            for call, path in _given_to_objects(nodes)
            if call.func.attr in self._written  # type: ignore[attr-defined]
            and any(map(grammar.varies, grammar.given_to(call)))
            and not self._is_fed_time(call, self._source.scopes[key])
        }

    def _tells(self, value: ast.expr, scope: Scope, but: str = "") -> bool:
        """Whether the value derives from a clock, a process or a host.

        but: what it is given to; that it derives from itself says nothing
        """
        waiting: list[ast.AST] = [value]
        while waiting:
            node = waiting.pop()
            if _is(node, but) or (isinstance(node, _MIXED) and self._parts_of(node, scope, but)):
                continue
            if self._only_asks(node, scope):
                continue
            if self._is_clock(node, scope):
                return True
            if isinstance(node, _WITH_NAMES):
                if self._tells_within(node, scope, but):
                    return True
                continue
            waiting += self._made_of(node, scope, but)
        return False

    def _only_asks(self, node: ast.AST, scope: Scope) -> bool:
        """Whether it asks of something whether it is there, where that counts: no time is in the
        answer."""
        path = asks_whether(node)
        return bool(path) and self._at(path, scope) in self._there

    def _tells_within(self, node: _WITH_NAMES, scope: Scope, but: str) -> bool:
        """What is made in a loop tells the time if each part does, not if it is made as often."""
        within = Within(own={*scope.own}, lines=scope.lines, around=scope)
        if isinstance(node, ast.Lambda):
            within.bound |= grammar.names_given(node)
            within.own |= within.bound
            return self._tells(node.body, within, but)
        for one in node.generators:
            bound = grammar.names(one.target)
            if self._only(one.iter, within):
                within.clocks |= bound
                within.places |= bound if self._is_place(one.iter, within) else set()
            within.bound |= bound
            within.own |= bound
        part = node.value if isinstance(node, ast.DictComp) else node.elt
        return self._tells(part, within, but)

    def _made_of(self, node: ast.AST, scope: Scope, but: str) -> list[ast.AST]:
        """What a value derives from: not what only decides, nor what the script's own function is
        given beside other things."""
        match node:
            case ast.IfExp(body=body, orelse=orelse):
                return self._if_all([body, orelse], scope, but)
            case ast.BoolOp(values=values):
                return self._if_all(
                    [one for one in values if not self._only_asks(one, scope)], scope, but
                )
            case ast.BinOp(op=ast.Mult(), left=left, right=right):
                rows = [one for one in (left, right) if grammar.is_row(one)]
                return [*(rows or (left, right))]  # How many there are says nothing of them.
            case ast.Call() | ast.Compare() if measures(node) and self._is_place(node, scope):
                return []
            case ast.Call():
                return self._given_on(node, scope, but)
            case ast.Subscript(value=held):  # Where it lies says nothing of what it is.
                return [held]
            case ast.Dict(values=values):
                return [*values]
            case ast.Attribute(attr=name) if name in self._kept:
                return []  # Of an object that was made with the time: it is judged by itself.
        return children(node)

    def _given_on(self, call: ast.Call, scope: Scope, but: str) -> list[ast.AST]:
        """Of what a call is given, and of its object: what it gives in another form."""
        name, given = called_name(call), grammar.given_to(call)
        if self._reads(call):
            return []
        if name in self._written:
            passed = self._if_all(given, scope, but)
            place = any(self._is_place(one, scope) for one in given)
            return passed if passed and self._passes_on(name, place=place) else []
        if name in _CHOOSE:
            return self._if_all(given, scope, but)
        held: list[ast.AST] = [call.func]
        if isinstance(call.func, ast.Attribute):
            held = [call.func.value]
            if name in _LOOKS_UP and given:  # By what it is looked up says nothing of it either.
                return [*held, *given[1:]]
        return [*held, *self._converted(call, scope, but)]

    def _converted(self, call: ast.Call, scope: Scope, but: str) -> list[ast.AST]:
        of_library = isinstance(call.func, ast.Name) or root_of(call.func) in self._file.imports
        if self._file.dotted(call.func).startswith(("math.", "statistics.")):
            return [*call.args[:1]]
        if called_name(call) in self._source.written or not converts(call):
            return []
        found = converted(call, of_library=of_library)
        return [*found] if is_text(call) else self._if_all(found, scope, but)

    def _passes_on(self, name: str, *, place: bool) -> bool:
        """Whether the functions of that name return the time if they are given nothing else.

        place: whether that is the machine, as text
        """
        asked = name, place
        if asked not in self._passing:
            self._passing[asked] = False  # While it is asked: it may call itself.
            named = self._named[name]
            self._passing[asked] = all(self._returns_given(one, place=place) for one in named)
        return self._passing[asked]

    def _returns_given(self, function: Function, *, place: bool) -> bool:
        key = scope_key(function)
        scope, nodes = self._source.scopes[key], self._nodes[key]
        stores = [
            (node, target.id, value)
            for node in nodes
            for target, value in _all_stores_of(node)
            if isinstance(target, ast.Name)
        ]
        given = grammar.names_given(function) - {"self", "cls"}
        within = Within(own=scope.own, lines=scope.lines, around=scope, clocks={*given})
        within.bound = given.union(name for _, name, _ in stores)
        within.places = {*within.bound} if place else set()
        for _ in stores:
            new = {name for _, name, value in stores if self._only(value, within, name)}
            if new <= within.clocks:
                break
            within.clocks |= new
        within.clocks -= {
            name
            for node, name, value in stores
            if not (grammar.is_reset(node, value) or self._only(value, within, name))
        }
        returned = [one.value for one in nodes if isinstance(one, ast.Return) and one.value]
        returned = [one for one in returned if grammar.varies(one)]
        return bool(returned) and all(self._only(one, within) for one in returned)

    def _is_place(self, value: ast.AST, scope: Scope) -> bool:
        """Whether something in it tells the machine, as text."""
        return any(self._names_place(one, scope) for one in walk(value))

    def _names_place(self, node: ast.AST, scope: Scope) -> bool:
        match node:
            case ast.Name(id=name):
                owner = self._belonging.scope_of(name, scope)
                known = isinstance(owner, Within) and name in owner.places
                return known or (id(owner), name) in self._places
            case ast.Call(func=func):
                dotted = self._file.dotted(func)
                of_machine = dotted in _PLACE_CALLS or dotted.partition(".")[0] in _PLACE_MODULES
                asks = dotted in ("os.getenv", "os.environ.get")
                return of_machine or asks or (0, f"{called_name(node)}()") in self._places
            case ast.Subscript(value=held) if self._file.dotted(held) == "os.environ":
                return True
            case ast.Attribute() | ast.Subscript():
                return self._known(node, scope) in self._places
        return False

    def _reads(self, call: ast.Call) -> bool:
        """Whether it gives what lies in a file or folder, or how much that is."""
        name = called_name(call)
        if name == "len" and call.args:
            return any(called_name(one) in _LISTS for one in walk(call.args[0]))
        return name in _READS and name not in self._written

    def _if_all(self, values: list[ast.expr], scope: Scope, but: str) -> list[ast.AST]:
        """These, if all of them tell the time that may differ."""
        others = [one for one in values if grammar.varies(one) and not _is(one, but)]
        return [*others] if all(self._tells(one, scope) for one in others) else []

    def _parts_of(self, value: ast.expr, scope: Scope, but: str = "") -> set[object]:
        """Where only parts of a value tell the time: which of a tuple, list, tensor or dict, by
        number or key. A loss beside the seconds that it took is none for that. but: as in `_tells`
        """
        entries: list[tuple[object, ast.expr]] = []
        match value:
            case ast.Tuple(elts=values) | ast.List(elts=values):
                entries = list(enumerate(values))
            case ast.Dict(keys=keys, values=values):
                entries = [
                    (key.value if isinstance(key, ast.Constant) else None, one)
                    for key, one in zip(keys, values, strict=True)
                ]
            case ast.BinOp(op=ast.Add()) if any(map(grammar.is_row, rows := grammar.sum_of(value))):
                rows = [one for one in rows if not _is(one, but)]
                parts = (one.elts if grammar.is_row(one) else [one] for one in rows)
                entries = list(enumerate(one for row in parts for one in row))
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                return self._parts_of(left, scope, but) | self._parts_of(right, scope, but)
            case ast.Call(func=ast.Name(id="dict"), args=[*others], keywords=keywords):
                entries = [(one.arg, one.value) for one in keywords]
                entries += [(None, one) for one in others if not self._tells(one, scope)]
            case ast.Call(args=values, keywords=keywords) if called_name(value) in self._records:
                entries = [*enumerate(values), *((one.arg, one.value) for one in keywords)]
            case ast.Call() if (name := called_name(value)) not in self._telling:
                if name in self._parts:
                    return self._parts[name]
                if not converts(value):
                    return set()
                given = (self._parts_of(one, scope, but) for one in grammar.given_to(value))
                return next(filter(None, given), set())  # A tensor of a list has the same parts.
        telling = {key for key, one in entries if self._tells(one, scope, but)}
        others = [one for key, one in entries if key not in telling]
        is_row = all(type(key) is int for key, _ in entries)
        if is_row and self._rows_tell and not any(map(grammar.varies, others)):
            return set()  # All that may differ in it tells the time.
        return telling

    def _is_clock(self, node: ast.AST, scope: Scope) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._belonging.scope_of(name, scope).clocks
            case ast.Call(func=func):
                dotted = "" if _is_own(root_of(func), scope) else self._file.dotted(func)
                is_known = dotted == "id" or root_of(func) in self._file.imports
                if is_known and (
                    dotted in _CLOCK_CALLS or dotted.partition(".")[0] in _CLOCK_MODULES
                ):
                    form = dotted.rpartition(".")[2]
                    is_form = form in _TIMELESS and bool(node.args or node.keywords)
                    return not (is_form or form in _TIMELESS_ALONE)
                if "." in dotted and self._is_told(dotted):
                    return True
                last = func.attr if isinstance(func, ast.Attribute) else dotted
                if last in _CLOCK_METHODS and last not in self._kept:
                    return True
                return self._is_telling(func, last) or (
                    dotted in ("os.getenv", "os.environ.get") and grammar.asks_machine(node)
                )
            case ast.Attribute(attr=name):
                known = name in _CLOCK_ATTRIBUTES and name not in self._kept
                return known or f".{name}" in self._source.clocks
            case ast.Subscript(value=container):
                if self._file.dotted(container) == "os.environ":
                    return grammar.asks_machine(node)
                if isinstance(container, ast.Call) and isinstance(node.slice, ast.Constant):
                    return node.slice.value in self._parts.get(called_name(container), ())
                path = grammar.path(node)
                return bool(path) and self._is_known(path, scope)
        return False

    def _is_telling(self, function: ast.expr, name: str) -> bool:
        """Whether a function of that name returns the time. What tensors and containers have by the
        same name (`losses.sum()`) does only where its object is known to be made of that class;
        none of a library's does (`np.average(x)`), nor of an object that is made of another class.
        """
        if name not in self._telling:
            return False
        if not isinstance(function, ast.Attribute):
            return True
        made_of = [
            one for one in self._stored.get(last_name(function.value), []) if grammar.varies(one)
        ]
        if name in OF_OBJECTS:
            owners = self._owners.get(name, set())
            return any(called_name(one) in owners for one in made_of)
        if self._is_of_library(function):
            return False
        return not (made_of and all(map(self._is_of_library, made_of)))

    def _is_of_library(self, value: ast.expr) -> bool:
        """Whether it is one of a library's that is known, or made by such."""
        made_by = value.func if isinstance(value, ast.Call) else value
        known = self._file.dotted(made_by).partition(".")[0] in KNOWN
        return known and root_of(made_by) in self._file.imports


def asks_clock(full: str) -> bool:
    """Whether something with that full name may tell the time or the machine."""
    return full.partition(".")[0] in _CLOCK_MODULES | {
        "os",
        "multiprocessing",
        "threading",
        "shutil",
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


def _all_stores_of(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Also those of loops and of `with`."""
    yield from grammar.stores_of(node)
    match node:
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
            yield from grammar.pairs(target, value)
        case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
            yield from grammar.pairs(target, value)


def _arguments(call: ast.Call, function: Function) -> Iterator[tuple[str, ast.expr]]:
    """What each parameter of a function is given, or of a method."""
    parameters = [one.arg for one in grammar.parameters_of(function)]
    if isinstance(call.func, ast.Attribute) and parameters[:1] in (["self"], ["cls"]):
        parameters = parameters[1:]
    for parameter, value in grammar.arguments(call, parameters):
        if value is not None:
            yield parameter, value


def _makes_object(value: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(value, ast.Call) and grammar.makes_object(value) and not converts(value)


def _read_as(node: ast.AST) -> Iterator[str]:
    """The path of what is read there; of a function that is called, its name and "()"."""
    match node:
        case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
            yield grammar.path(node)
        case ast.Call():
            yield f"{called_name(node)}()"


def _base(path: str) -> str:
    """The name that a part is one of: "stats" of "stats['time']"."""
    return path.partition("[")[0]


def _given_to_objects(nodes: list[ast.AST]) -> Iterator[tuple[ast.Call, str]]:
    """Calls of methods that are given something, each with the path of its object."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            path = grammar.path(node.func.value)
            if path and grammar.given_to(node):
                yield node, path


def _is_own(name: str, scope: Scope) -> bool:
    """Whether it is none of the file's: `time` may be a parameter, or a step of a diffusion."""
    return name in scope.own or name in scope.lines


def _is(node: ast.AST, path: str) -> bool:
    return bool(path) and isinstance(node, ast.expr) and grammar.path(node) == path
