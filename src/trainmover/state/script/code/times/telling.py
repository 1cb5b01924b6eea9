# SPDX-License-Identifier: Apache-2.0
"""Whether a value derives from a clock, a process or a host, by what is known of the names, the
attributes and the functions that are in it: `clocks` finds these, and asks this over and over."""

import ast
from collections.abc import Callable
from typing import TypeGuard

from trainmover.state.script.code import grammar
from trainmover.state.script.code.changing import root_of
from trainmover.state.script.code.functions import KNOWN, OF_OBJECTS
from trainmover.state.script.code.scopes import File, Scope, Source, scope_key
from trainmover.state.script.code.syntax import (
    Function,
    called_name,
    children,
    last_name,
    walk,
)
from trainmover.state.script.code.times.belonging import Belonging, Within
from trainmover.state.script.code.times.conversions import converted, converts, is_text, measures
from trainmover.state.script.code.times.whether import asks_whether

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
Path = tuple[int, str]
"""A name with the id of its scope, an attribute with 0."""


class Telling:
    """Of one file.

    functions  that return the time
    parts      of functions of which a part of the result is one: which, by number or key
    places     what tells the machine, as text
    there      what counts by being there, or by how much there is
    named      the file's functions, by name
    stored     what is stored by a name, wherever
    rows_tell  also those that have constants beside the time

    is_told: whether a function of another file, by its full name, returns the time
    """

    def __init__(
        self, file: File, source: Source, belonging: Belonging, is_told: Callable[[str], bool]
    ) -> None:
        self.functions = set[str]()
        self.parts: dict[str, set[object]] = {}
        self.places = set[Path]()
        self.there = set[Path]()
        self.named: dict[str, list[Function]] = {}
        self.stored: dict[str, list[ast.expr]] = {}
        self.rows_tell = True
        self._file = file
        self._source = source
        self._belonging = belonging
        self._is_told = is_told
        self._nodes = {key: nodes for key, _, nodes in file.bodies}
        self._passing: dict[tuple[str, bool], bool] = {}  # Functions that give on the time.
        self._owners: dict[str, set[str]] = {}  # Classes with a method of that name.
        self._records = {*grammar.records(file.tree)}
        self._kept = set[str]()  # Attributes that are stored to.
        for node, owner in file.functions:
            self.named.setdefault(node.name, []).append(node)
            self._owners.setdefault(node.name, set()).add(owner)
        for one in walk(file.tree):
            for target, value in grammar.stores_of(one):
                self.stored.setdefault(last_name(target), []).append(value)
            if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load):
                self._kept.add(one.attr)

    def forget(self) -> None:
        """What was found of functions and places."""
        self.functions.clear()
        self.parts.clear()
        self.places.clear()
        self._passing.clear()

    def ask_anew(self) -> None:
        """Which functions give on the time: more is known by now."""
        self._passing.clear()

    def is_time(self, path: str, scope: Scope) -> bool:
        """Whether it is known to tell the time: a name, an attribute, what a function returns."""
        if path.endswith("()"):
            return path[:-2] in self.functions
        return self._is_known(path, scope)

    def known(self, target: ast.expr, scope: Scope) -> Path:
        """What is stored to."""
        return self.at(grammar.path(target), scope)

    def at(self, path: str, scope: Scope) -> Path:
        if path.startswith(".") or path.endswith("()"):
            return 0, path
        return id(self._belonging.scope_of(base(path), scope)), path

    def tells(self, value: ast.expr, scope: Scope, but: str = "") -> bool:
        """Whether the value derives from a clock, a process or a host.

        but: what it is given to; that it derives from itself says nothing
        """
        waiting: list[ast.AST] = [value]
        while waiting:
            node = waiting.pop()
            if is_it(node, but) or (isinstance(node, _MIXED) and self.parts_of(node, scope, but)):
                continue
            if self._only_asks(node, scope):
                continue
            if self.is_clock(node, scope):
                return True
            if isinstance(node, _WITH_NAMES):
                if self._tells_within(node, scope, but):
                    return True
                continue
            waiting += self._made_of(node, scope, but)
        return False

    def only(self, value: ast.expr | None, scope: Scope, but: str = "") -> bool:
        """Whether it tells the time, and nothing else."""
        if value is None or not self.tells(value, scope, but):
            return False
        return not self.parts_of(value, scope, but)

    def is_place(self, value: ast.AST, scope: Scope) -> bool:
        """Whether something in it tells the machine, as text."""
        return any(self._names_place(one, scope) for one in walk(value))

    def parts_of(self, value: ast.expr, scope: Scope, but: str = "") -> set[object]:
        """Where only parts of a value tell the time: which of a tuple, list, tensor or dict, by
        number or key. A loss beside the seconds that it took is none for that. but: as in `tells`
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
                rows = [one for one in rows if not is_it(one, but)]
                parts = (one.elts if grammar.is_row(one) else [one] for one in rows)
                entries = list(enumerate(one for row in parts for one in row))
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                return self.parts_of(left, scope, but) | self.parts_of(right, scope, but)
            case ast.Call(func=ast.Name(id="dict"), args=[*others], keywords=keywords):
                entries = [(one.arg, one.value) for one in keywords]
                entries += [(None, one) for one in others if not self.tells(one, scope)]
            case ast.Call(args=values, keywords=keywords) if called_name(value) in self._records:
                entries = [*enumerate(values), *((one.arg, one.value) for one in keywords)]
            case ast.Call() if (name := called_name(value)) not in self.functions:
                if name in self.parts:
                    return self.parts[name]
                if not converts(value):
                    return set()
                given = (self.parts_of(one, scope, but) for one in grammar.given_to(value))
                return next(filter(None, given), set())  # A tensor of a list has the same parts.
        telling = {key for key, one in entries if self.tells(one, scope, but)}
        others = [one for key, one in entries if key not in telling]
        is_row = all(type(key) is int for key, _ in entries)
        if is_row and self.rows_tell and not any(map(grammar.varies, others)):
            return set()  # All that may differ in it tells the time.
        return telling

    def is_clock(self, node: ast.AST, scope: Scope) -> bool:
        """Whether it reads one, or what is known to tell the time: the whole, not its parts."""
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
                    return node.slice.value in self.parts.get(called_name(container), ())
                path = grammar.path(node)
                return bool(path) and self._is_known(path, scope)
        return False

    def _only_asks(self, node: ast.AST, scope: Scope) -> bool:
        """Whether it asks of something whether it is there, where that counts: no time is in the
        answer."""
        path = asks_whether(node)
        return bool(path) and self.at(path, scope) in self.there

    def _tells_within(self, node: _WITH_NAMES, scope: Scope, but: str) -> bool:
        """What is made in a loop tells the time if each part does, not if it is made as often."""
        within = Within(own={*scope.own}, lines=scope.lines, around=scope)
        if isinstance(node, ast.Lambda):
            within.bound |= grammar.names_given(node)
            within.own |= within.bound
            return self.tells(node.body, within, but)
        for one in node.generators:
            bound = grammar.names(one.target)
            if self.only(one.iter, within):
                within.clocks |= bound
                within.places |= bound if self.is_place(one.iter, within) else set()
            within.bound |= bound
            within.own |= bound
        part = node.value if isinstance(node, ast.DictComp) else node.elt
        return self.tells(part, within, but)

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
            case ast.Call() | ast.Compare() if measures(node) and self.is_place(node, scope):
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
        if name in self.named:
            passed = self._if_all(given, scope, but)
            place = any(self.is_place(one, scope) for one in given)
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
            named = self.named[name]
            self._passing[asked] = all(self._returns_given(one, place=place) for one in named)
        return self._passing[asked]

    def _returns_given(self, function: Function, *, place: bool) -> bool:
        key = scope_key(function)
        scope, nodes = self._source.scopes[key], self._nodes[key]
        stores = [
            (node, target.id, value)
            for node in nodes
            for target, value in grammar.all_stores_of(node)
            if isinstance(target, ast.Name)
        ]
        given = grammar.names_given(function) - {"self", "cls"}
        within = Within(own=scope.own, lines=scope.lines, around=scope, clocks={*given})
        within.bound = given.union(name for _, name, _ in stores)
        within.places = {*within.bound} if place else set()
        for _ in stores:
            new = {name for _, name, value in stores if self.only(value, within, name)}
            if new <= within.clocks:
                break
            within.clocks |= new
        within.clocks -= {
            name
            for node, name, value in stores
            if not (grammar.is_reset(node, value) or self.only(value, within, name))
        }
        returned = [one.value for one in nodes if isinstance(one, ast.Return) and one.value]
        returned = [one for one in returned if grammar.varies(one)]
        return bool(returned) and all(self.only(one, within) for one in returned)

    def _names_place(self, node: ast.AST, scope: Scope) -> bool:
        match node:
            case ast.Name(id=name):
                owner = self._belonging.scope_of(name, scope)
                known = isinstance(owner, Within) and name in owner.places
                return known or (id(owner), name) in self.places
            case ast.Call(func=func):
                dotted = self._file.dotted(func)
                of_machine = dotted in _PLACE_CALLS or dotted.partition(".")[0] in _PLACE_MODULES
                asks = dotted in ("os.getenv", "os.environ.get")
                return of_machine or asks or (0, f"{called_name(node)}()") in self.places
            case ast.Subscript(value=held) if self._file.dotted(held) == "os.environ":
                return True
            case ast.Attribute() | ast.Subscript():
                return self.known(node, scope) in self.places
        return False

    def _reads(self, call: ast.Call) -> bool:
        """Whether it gives what lies in a file or folder, or how much that is."""
        name = called_name(call)
        if name == "len" and call.args:
            return any(called_name(one) in _LISTS for one in walk(call.args[0]))
        return name in _READS and name not in self.named

    def _if_all(self, values: list[ast.expr], scope: Scope, but: str) -> list[ast.AST]:
        """These, if all of them tell the time that may differ."""
        others = [one for one in values if grammar.varies(one) and not is_it(one, but)]
        return [*others] if all(self.tells(one, scope) for one in others) else []

    def _is_known(self, path: str, scope: Scope) -> bool:
        if path.startswith("."):
            return path in self._source.clocks
        return path in self._belonging.scope_of(base(path), scope).clocks

    def _is_telling(self, function: ast.expr, name: str) -> bool:
        """Whether a function of that name returns the time. What tensors and containers have by the
        same name (`losses.sum()`) does only where its object is known to be made of that class;
        none of a library's does (`np.average(x)`), nor of an object that is made of another class.
        """
        if name not in self.functions:
            return False
        if not isinstance(function, ast.Attribute):
            return True
        made_of = [
            one for one in self.stored.get(last_name(function.value), []) if grammar.varies(one)
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
    others = {"os", "multiprocessing", "threading", "shutil"}
    return full.partition(".")[0] in _CLOCK_MODULES | others


def _is_own(name: str, scope: Scope) -> bool:
    """Whether it is none of the file's: `time` may be a parameter, or a step of a diffusion."""
    return name in scope.own or name in scope.lines


def is_it(node: ast.AST, path: str) -> bool:
    return bool(path) and isinstance(node, ast.expr) and grammar.path(node) == path


def makes_object(value: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(value, ast.Call) and grammar.makes_object(value) and not converts(value)


def base(path: str) -> str:
    """The name that a part is one of: "stats" of "stats['time']"."""
    return path.partition("[")[0]
