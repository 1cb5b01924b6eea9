"""Names and attributes whose value derives from a clock, a process or a host: they differ on all
machines, and nothing that is trained may depend on them.

A function that returns the time tells it to who calls it, an object that is given nothing else
holds it. What is given something else too is no such thing.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from trainmover.state.script.code import grammar
from trainmover.state.script.code.changing import is_change, root_of
from trainmover.state.script.code.counted import counted, size_of
from trainmover.state.script.code.fed import FEEDS, kept_in
from trainmover.state.script.code.functions import KNOWN, OF_OBJECTS, changes_first
from trainmover.state.script.code.grammar import CONSTRUCTORS
from trainmover.state.script.code.guarded import asks_for_shadow
from trainmover.state.script.code.scopes import MODULE, File, Key, Scope, Source, scope_key
from trainmover.state.script.code.syntax import (
    Function,
    called_name,
    children,
    last_name,
    walk,
)

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
_TIMELESS_ALONE = frozenset({"timedelta", "SpooledTemporaryFile"})
"""Of these, what is no time without an argument either."""
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
_CHOOSE = frozenset({"min", "max"})
_LOOKS_UP = frozenset({"get", "pop", "setdefault"})
_READS = frozenset(
    {"read", "readline", "readlines", "read_text", "read_bytes", "load", "loadtxt", "genfromtxt"}
    | {"fromfile", "read_csv", "getsize", "stat", "tell", "exists", "isfile", "isdir", "is_file"}
    | {"is_dir", "listdir"}
)
"""What lies in a file or folder follows from nothing in its name."""
_LISTS = frozenset({"glob", "rglob", "iglob", "iterdir", "scandir", "walk"})
_Path = tuple[int, str]
"""A name with the id of its scope, an attribute with 0."""


class Clocks:
    """Of one file: into the scopes of `source`, and its `clocks`, `apart`, `fed`, `keeps`,
    `guarded`, `by_real`, `told`, `untold` and `telling`.

    is_told: whether a function of another file, by its full name, returns the time
    """

    def __init__(self, file: File, source: Source, is_told: Callable[[str], bool]) -> None:
        self._file = file
        self._source = source
        self._is_told = is_told
        self._written = {node.name for node, _ in file.functions}
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
        self._fed_otherwise: set[str] = set()
        self._rows_tell = True  # Also those that have constants beside the time.
        self._apart: set[_Path] = set()  # Those that are left out whatever they are given.
        self._given_time: set[_Path] = set()  # Those of them that are given nothing but the time.

    def find(self) -> None:
        """Until nothing new is found: what derives from a clock makes others derive from it. What
        is given other values too is none, and nothing derives from it."""
        self._mixed |= self._beside()
        while True:
            self._derive()
            mixed, untelling = self._stored_otherwise() | self._counted(), self._return_otherwise()
            if mixed <= self._mixed and not untelling:
                self._set_apart()
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
                        found.add(_known(target, scope))
        self._forget()
        return found

    def _forget(self) -> None:
        self._source.clocks.clear()
        self._telling.clear()
        self._parts.clear()
        for scope in self._source.scopes.values():
            scope.clocks.clear()

    def _set_apart(self) -> None:
        of = {id(scope): scope for scope in self._source.scopes.values()}
        for owner, path in self._apart:
            of.get(owner, self._source).apart.add(path)
        for owner, path in self._given_time:
            of.get(owner, self._source).fed.add(path)
        self._source.keeps = kept_in(self._file.tree, self._file.functions, self._tells_in)

    def _tells_in(self, function: Function, node: ast.AST) -> bool:
        return self._is_clock(node, self._source.scopes[scope_key(function)])

    def _derive(self) -> None:
        for _ in range(12):
            before, self._fed_otherwise = self._count(), self._given_otherwise()
            for key, _, nodes in self._file.bodies:
                scope = self._source.scopes[key]
                for node in nodes:
                    self._clock(node, scope, key)
                self._fed(nodes, scope)
            self._called_with()
            if self._count() == before:
                return

    def _called_with(self) -> None:
        """Parameters that are given nothing but the time, as the folder of a log: of functions, and
        of what is made of a class."""
        told: dict[tuple[str, str], list[bool]] = {}
        for key, _, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for node in nodes:
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    name = node.func.id
                    for parameter, value in grammar.arguments(node, self._parameters.get(name, [])):
                        told.setdefault((name, parameter), []).append(self._only(value, scope))
        for (name, parameter), each in told.items():
            made_by = self._made_by.get(name)
            if all(each) and made_by is not None:
                self._note(parameter, self._source.scopes[made_by])
            elif all(each):
                self._note(f".{parameter}", self._source.scopes[MODULE])

    def _only(self, value: ast.expr | None, scope: Scope) -> bool:
        """Whether it tells the time, and nothing else."""
        if value is None or not self._tells(value, scope):
            return False
        return not self._parts_of(value, scope)

    def _stored_otherwise(self) -> set[_Path]:
        """Names and attributes that tell the time, and are given something else, too."""
        self._source.told, self._source.untold = {}, {}
        found = set[_Path]()
        for key, owner, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for node in nodes:
                for target, value in grammar.stores_of(node):
                    known, own = _known(target, scope), owner if grammar.is_on_self(target) else ""
                    is_made = own and key[0] in CONSTRUCTORS
                    if is_made or known in self._apart or grammar.is_reset(node, value):
                        continue
                    path = known[1]
                    tells = self._tells(value, scope, but=path)
                    tells = tells and not self._parts_of(value, scope, but=path)
                    tells = tells and not (
                        isinstance(value, ast.Call) and grammar.makes_object(value)
                    )
                    if not tells and (whole := grammar.root(target)) is not target:
                        found.add(_known(whole, scope))
                    if path.startswith("."):
                        stored_by = self._source.told if tells else self._source.untold
                        stored_by.setdefault(path[1:], set()).add(own)
                    elif path in scope.clocks and not tells:
                        found.add(known)
        self._changed_otherwise()
        both = self._source.clocks & {f".{name}" for name in self._source.untold}
        return found | {(0, path) for path in both}

    def _counted(self) -> set[_Path]:
        """Lists of times of which the length counts."""
        found = set[_Path]()
        named = Counter(node.name for node, _ in self._file.functions)
        known = {node.name: node for node, _ in self._file.functions if named[node.name] == 1}
        bodies = [self._file.tree.body, *(node.body for node, _ in self._file.functions)]
        for (key, _, nodes), body in zip(self._file.bodies, bodies, strict=True):
            scope = self._source.scopes[key]
            sizes = {size_of(node) for node in nodes if isinstance(node, ast.Call)}
            if any(path and self._is_known(path, scope) for path in sizes):
                asked = counted(body, partial(self._tells, scope=scope), known)
                paths = [path for path in asked if self._is_known(path, scope)]
                found |= {_at(path, scope) for path in paths}
        return found

    def _is_known(self, path: str, scope: Scope) -> bool:
        top = self._source.scopes[MODULE].clocks
        is_named = path in scope.clocks or (path in top and not _is_own(path, scope))
        return is_named or path in self._source.clocks

    def _changed_otherwise(self) -> None:
        """Attributes that are changed in place with something else than the time, by the classes
        whose methods do so to their own object."""
        for key, owner, nodes in self._file.bodies:
            scope = self._source.scopes[key]
            for node in nodes:
                changed = self._changed_with(node) if isinstance(node, ast.Call) else None
                if changed is None:
                    continue
                attribute, values = changed
                values = [one for one in values if grammar.varies(one)]
                if values and not all(self._tells(one, scope) for one in values):
                    own = owner if grammar.is_on_self(attribute) else ""
                    self._source.untold.setdefault(attribute.attr, set()).add(own)

    def _changed_with(self, call: ast.Call) -> tuple[ast.Attribute, list[ast.expr]] | None:
        """An attribute that a call may change, and what it is given beside."""
        given = grammar.given_to(call)
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Attribute() as held, attr=name)):
                if is_change(name):
                    return held, given
            case ast.Call(args=[ast.Attribute() as held, *_]):
                if changes_first(called_name(call)):
                    return held, given[1:]
        return None

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
            case ast.AugAssign(target=target, value=value) if self._tells(value, scope):
                self._mark(target, scope)
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                self._assigned(target, value, scope)
            case ast.Return(value=ast.expr() as value) if key[0] not in self._untelling:
                if parts := self._parts_of(value, scope):
                    self._parts.setdefault(key[0], set()).update(parts)
                elif self._tells(value, scope):
                    self._telling.add(key[0])
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
                self._note(f"{but}[{part!r}]", scope)
        elif isinstance(value, ast.Call) and grammar.makes_object(value):
            for keyword in value.keywords:
                if keyword.arg and self._tells(keyword.value, scope):
                    self._source.clocks.add(f".{keyword.arg}")
        elif self._tells(value, scope, but):
            self._mark(target, scope)

    def _guarded(self, target: ast.Name | ast.Attribute, scope: Scope) -> None:
        name = target.id if isinstance(target, ast.Name) else target.attr
        if name not in self._source.values:
            if isinstance(target, ast.Attribute):
                self._source.guarded.add(name)
            self._apart.add(_known(target, scope))
            self._mark(target, scope)
        else:
            self._source.by_real.add(name)

    def _mark(self, target: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._mark(one, scope)
        elif isinstance(target, ast.Starred):
            self._mark(target.value, scope)
        elif path := grammar.path(target):
            self._note(path, scope)

    def _note(self, path: str, scope: Scope) -> None:
        """An attribute is known everywhere, a name in its scope."""
        if _at(path, scope) in self._mixed:
            return
        (self._source.clocks if path.startswith(".") else scope.clocks).add(path)

    def _fed(self, nodes: list[ast.AST], scope: Scope) -> None:
        """Objects that are given nothing but the time: `batch_time.update(time.time() - end)`."""
        fed: dict[str, list[bool]] = {}
        for call, path in _given_to_objects(nodes):
            if call.func.attr in FEEDS and path != "self":  # type: ignore[attr-defined]
                fed.setdefault(path, []).append(self._is_fed_time(call, scope))
        for path, told in fed.items():
            if all(told) and path not in self._fed_otherwise:
                self._apart.add(_at(path, scope))
                self._given_time.add(_at(path, scope))
                self._note(path, scope)

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
            if self._is_clock(node, scope):
                return True
            waiting += self._made_of(node, scope, but)
        return False

    def _made_of(self, node: ast.AST, scope: Scope, but: str) -> list[ast.AST]:
        """What a value derives from: not what only decides, nor what the script's own function is
        given beside other things."""
        match node:
            case ast.IfExp(body=body, orelse=orelse):
                return self._if_all([body, orelse], scope, but)
            case ast.Call() if self._reads(node):
                return []
            case ast.GeneratorExp(elt=ast.Call() as held) | ast.ListComp(elt=ast.Call() as held):
                return [held] if self._reads(held) else children(node)
            case ast.comprehension(iter=iterable):
                return [iterable]
            case ast.Call(func=ast.Attribute(value=held, attr=name), args=[_, *others]):
                if name in _LOOKS_UP:  # By what it is looked up says nothing of it either.
                    return [held, *others]
            case ast.Subscript(value=held):  # Where it lies says nothing of what it is.
                return [held]
            case ast.Dict(values=values):
                return [*values]
            case ast.DictComp(value=held, generators=generators):
                return [held, *generators]
            case ast.Attribute(attr=name) if name in self._kept:
                return []  # Of an object that was made with the time: it is judged by itself.
        if isinstance(node, ast.Call) and called_name(node) in self._written | _CHOOSE:
            return self._if_all(grammar.given_to(node), scope, but)
        return children(node)

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
                top = self._source.scopes[MODULE].clocks
                return name in scope.clocks or (name in top and not _is_own(name, scope))
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
                return bool(path) and (path in scope.clocks or path in self._source.clocks)
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


def tells_in(source: Source, name: str, kinds: Iterable[str]) -> bool:
    """Whether an attribute tells the time in objects of these classes, though others give other
    values to one of that name: a timer's total, beside a meter's."""
    told, untold = source.told.get(name, set()), source.untold.get(name, set())
    return "" not in told | untold and bool(told & {*kinds}) and not untold & {*kinds}


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


def _known(target: ast.expr, scope: Scope) -> _Path:
    return _at(grammar.path(target), scope)


def _at(path: str, scope: Scope) -> _Path:
    return (0 if path.startswith(".") else id(scope), path)
