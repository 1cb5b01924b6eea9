"""What the source of a script's own files says of its variables: who stores to them, and which of
them tell the time or the machine, so that they differ everywhere.

    stores    attributes, globals and containers that are changed after the set-up: in a function
              other than a constructor, or in a loop
    clocks    names and attributes whose value derives from a clock, a process or a host

Names of attributes stand for themselves, whatever object they belong to: `.t0`. A part of a
container that is known by a constant is written with it: `stats['time']`.
"""

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from trainmover.state.script.carried import carried_attributes

_CLOCK_MODULES = frozenset(
    {"time", "datetime", "timeit", "uuid", "socket", "platform", "getpass", "tempfile", "psutil"}
    | {"resource", "secrets", "pwd"}
)
_CLOCK_CALLS = frozenset(
    {"os.getpid", "os.getppid", "os.uname", "os.urandom", "os.times", "os.cpu_count"}
    | {"os.getloadavg", "os.getlogin", "multiprocessing.cpu_count", "threading.get_ident"}
    | {"os.sched_getaffinity", "shutil.disk_usage", "id"}
)
_CLOCK_ATTRIBUTES = frozenset(
    {"is_shadow", "elapsed_time", "memory_allocated", "max_memory_allocated", "memory_reserved"}
    | {"max_memory_reserved", "memory_stats", "mem_get_info"}
)
_MACHINE_WORDS = ("HOST", "MACHINE", "NODE", "PID", "TMP", "TEMP", "USER", "HOME", "ADDR", "PORT")
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__"})
_CHANGES = frozenset(
    {"append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem"}
    | {"remove", "discard", "add", "clear", "update", "setdefault", "sort", "reverse", "rotate"}
    | {"subtract", "difference_update", "intersection_update", "move_to_end"}
)
_FEEDS = frozenset({"update", "add", "append", "push", "record", "put", "extend", "insert"})
_OURS = frozenset({"batches", "enumerate", "range"})
Function = ast.FunctionDef | ast.AsyncFunctionDef
Key = tuple[str, int]
"""Of a scope: its name, and the first line of its code object; a module's is 0."""
MODULE: Key = ("<module>", 0)


@dataclass
class Scope:
    """One function, or the top of a file.

    clocks   names in it that tell the time or the machine
    counts   first targets of `for` over enumerate(...): they count, whatever else they may equal
    given    targets of `for` over job.batches(...) and its kin: they follow the place that is kept
    lines    of the last store to each name
    """

    clocks: set[str] = field(default_factory=set)
    counts: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)
    lines: dict[str, int] = field(default_factory=dict)


@dataclass
class Source:
    """Of one file, or of several together.

    attributes  that are stored to after the set-up, with the line of the last store
    by_class    those that methods store on their own object, by name of the class
    by_others   those that are stored on any other object
    temporary   attributes that are written before they are read, wherever they are read
    changed     names and attributes of containers that are changed in place
    globals     that functions store to
    read        names that functions read and do not store: the file's globals, and names around
    clocks      attributes and parts that tell the time or the machine: ".t0", "stats['time']"
    """

    scopes: dict[Key, Scope] = field(default_factory=dict)
    attributes: dict[str, int] = field(default_factory=dict)
    by_class: dict[str, set[str]] = field(default_factory=dict)
    by_others: set[str] = field(default_factory=set)
    temporary: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    clocks: set[str] = field(default_factory=set)


@lru_cache(maxsize=512)
def source_of(path: str) -> Source | None:
    """None if the file cannot be read as Python."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None
    return read(tree)


def read(tree: ast.Module) -> Source:
    """All that is known of one file."""
    reader = _Reader(tree)
    reader.stores()
    reader.reads()
    reader.clocks()
    reader.source.temporary = reader.source.attributes.keys() - carried_attributes(tree)
    return reader.source


def together(sources: Iterable[Source]) -> Source:
    """What holds in a script of several files. Scopes are left out: each is of its own file."""
    whole, temporary = Source(), []
    for one in sources:
        whole.attributes |= one.attributes
        for name, stored in one.by_class.items():
            whole.by_class.setdefault(name, set()).update(stored)
        whole.by_others |= one.by_others
        whole.changed |= one.changed
        whole.globals |= one.globals
        whole.clocks |= one.clocks
        temporary.append((one.attributes.keys(), one.temporary))
    whole.temporary = {
        name
        for name in whole.attributes
        if all(name in brief for stored, brief in temporary if name in stored)
    }
    return whole


def scope_key(node: Function) -> Key:
    """As the code object of the function has it."""
    return node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])


class _Reader:
    """Walks one file, function by function."""

    def __init__(self, tree: ast.Module) -> None:
        self.source = Source()
        self._tree = tree
        self._imports = dict(_imports(tree))
        self._functions = list(_functions(tree, ""))
        self._bodies: list[tuple[Key, str, list[ast.AST]]] = [(MODULE, "", list(_own(tree)))]
        for node, owner in self._functions:
            self._bodies.append((scope_key(node), owner, list(_own(node))))
        self._telling: set[str] = set()  # Functions that return the time.

    # --- stores -----------------------------------------------------------------------------------

    def stores(self) -> None:
        for key, owner, nodes in self._bodies:
            scope = self.source.scopes.setdefault(key, Scope())
            in_loops = set(_in_loops(nodes)) if key == MODULE or key[0] in _CONSTRUCTORS else None
            declared = {n for node in nodes if isinstance(node, ast.Global) for n in node.names}
            for node in nodes:
                later = key[0] not in _CONSTRUCTORS and (in_loops is None or id(node) in in_loops)
                self._store(node, scope, owner, declared, later=later)

    def _store(
        self, node: ast.AST, scope: Scope, owner: str, declared: set[str], *, later: bool
    ) -> None:
        if isinstance(node, ast.For):
            kept = _is_ours(node.iter)
            scope.given.update(_names(node.target) if kept else ())
            scope.counts.update(_names(_first_of(node.target)) if _is_enumerate(node) else ())
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            scope.lines[node.id] = max(node.lineno, scope.lines.get(node.id, 0))
            if node.id in declared:
                self.source.globals.add(node.id)
                at = self.source.scopes[MODULE].lines
                at[node.id] = max(node.lineno, at.get(node.id, 0))
        elif later and isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            self._attribute(node, owner)
        elif later and (changed := _changed_in_place(node)) is not None:
            name = changed.attr if isinstance(changed, ast.Attribute) else changed.id
            self.source.changed.add(name)
            if isinstance(changed, ast.Attribute):
                self.source.attributes[name] = max(
                    changed.lineno, self.source.attributes.get(name, 0)
                )
                self._note_owner(changed, owner)
            else:
                scope.lines[name] = max(changed.lineno, scope.lines.get(name, 0))

    def _attribute(self, node: ast.Attribute, owner: str) -> None:
        known = self.source.attributes
        known[node.attr] = max(node.lineno, known.get(node.attr, 0))
        self._note_owner(node, owner)

    def _note_owner(self, node: ast.Attribute, owner: str) -> None:
        on_self = isinstance(node.value, ast.Name) and node.value.id == "self" and owner
        if on_self:
            self.source.by_class.setdefault(owner, set()).add(node.attr)
        else:
            self.source.by_others.add(node.attr)

    def reads(self) -> None:
        """Of functions and lambdas."""
        for node, _ in self._functions:
            names = [part for part in _own(node) if isinstance(part, ast.Name)]
            loaded = {name.id for name in names if isinstance(name.ctx, ast.Load)}
            own = self.source.scopes[scope_key(node)].lines.keys() - self.source.globals
            self.source.read |= loaded - own - {one.arg for one in ast.walk(node.args)
                                                if isinstance(one, ast.arg)}  # fmt: skip
        for inner in ast.walk(self._tree):
            if isinstance(inner, ast.Lambda):
                taken = {one.arg for one in ast.walk(inner.args) if isinstance(one, ast.arg)}
                self.source.read |= _names(inner.body) - taken

    # --- clocks -----------------------------------------------------------------------------------

    def clocks(self) -> None:
        """Until nothing new is found: what derives from a clock makes others derive from it."""
        for _ in range(12):
            before = self._count()
            for key, _, nodes in self._bodies:
                scope = self.source.scopes[key]
                for node in nodes:
                    self._clock(node, scope, key)
                self._fed(nodes, scope)
            if self._count() == before:
                return

    def _count(self) -> int:
        scopes = sum(len(scope.clocks) for scope in self.source.scopes.values())
        return scopes + len(self.source.clocks) + len(self._telling)

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
            case ast.Return(value=ast.expr() as value) if self._tells(value, scope):
                self._telling.add(key[0])
            case ast.If(test=test) if _asks_for_shadow(test):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Name | ast.Attribute) and isinstance(
                        inner.ctx, ast.Store
                    ):
                        self._mark(inner, scope)

    def _assigned(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        both = isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)
        if both and len(target.elts) == len(value.elts):  # type: ignore[attr-defined]
            for one, its in zip(target.elts, value.elts, strict=True):  # type: ignore[attr-defined]
                self._assigned(one, its, scope)
        elif isinstance(value, ast.Dict):
            for name, entry in zip(value.keys, value.values, strict=True):
                if self._tells(entry, scope) and (path := _path(target)):
                    constant = isinstance(name, ast.Constant)
                    part = f"{path}[{name.value!r}]" if constant else path  # type: ignore[union-attr]
                    self._note(part, scope)
        elif isinstance(value, ast.Call) and _makes_object(value):
            for keyword in value.keywords:
                if keyword.arg and self._tells(keyword.value, scope):
                    self.source.clocks.add(f".{keyword.arg}")
        elif self._tells(value, scope):
            self._mark(target, scope)

    def _mark(self, target: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._mark(one, scope)
        elif isinstance(target, ast.Starred):
            self._mark(target.value, scope)
        elif path := _path(target):
            self._note(path, scope)

    def _note(self, path: str, scope: Scope) -> None:
        """An attribute is known everywhere, a name in its scope."""
        (self.source.clocks if path.startswith(".") else scope.clocks).add(path)

    def _fed(self, nodes: list[ast.AST], scope: Scope) -> None:
        """Objects that are given nothing but the time: `batch_time.update(time.time() - end)`."""
        fed: dict[str, list[bool]] = {}
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                path = _path(node.func.value)
                if node.func.attr in _FEEDS and path and path != "self":
                    fed.setdefault(path, []).append(self._tells(node.args[0], scope))
        for path, told in fed.items():
            if all(told):
                self._note(path, scope)

    def _tells(self, value: ast.expr, scope: Scope) -> bool:
        """Whether the value derives from a clock, a process or a host."""
        return any(self._is_clock(node, scope) for node in ast.walk(value))

    def _is_clock(self, node: ast.AST, scope: Scope) -> bool:
        match node:
            case ast.Name(id=name):
                top = self.source.scopes[MODULE].clocks
                return name in scope.clocks or (name in top and name not in scope.lines)
            case ast.Call(func=func):
                dotted = self._dotted(func)
                if dotted in _CLOCK_CALLS or dotted.partition(".")[0] in _CLOCK_MODULES:
                    return True
                last = func.attr if isinstance(func, ast.Attribute) else dotted
                return last in self._telling or (
                    dotted in ("os.getenv", "os.environ.get") and _names_machine(node)
                )
            case ast.Attribute(attr=name):
                return name in _CLOCK_ATTRIBUTES or f".{name}" in self.source.clocks
            case ast.Subscript(value=container):
                if self._dotted(container) == "os.environ":
                    return _names_machine(node)
                path = _path(node)
                return bool(path) and (path in scope.clocks or path in self.source.clocks)
        return False

    def _dotted(self, node: ast.expr) -> str:
        """The full name of what is called, as far as imports tell: "time.perf_counter"."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self._imports.get(node.id, node.id), *reversed(parts)])


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _functions(node: ast.AST, owner: str) -> Iterator[tuple[Function, str]]:
    """With the class whose method each is, "" for others."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, owner
            yield from _functions(child, owner)
        else:
            yield from _functions(child, child.name if isinstance(child, ast.ClassDef) else owner)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below `node` that belongs to the same scope."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _own(child)


def _in_loops(nodes: list[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.For | ast.While | ast.AsyncFor):
            yield from (id(inner) for inner in ast.walk(node))


def _changed_in_place(node: ast.AST) -> ast.Name | ast.Attribute | None:
    """The container, or the tensor, that is changed by this node."""
    found: ast.expr | None = None
    match node:
        case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
            found = value
        case ast.AugAssign(target=ast.Name() | ast.Attribute() as target):
            found = target
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if _is_change(name):
            found = value
    while isinstance(found, ast.Subscript):
        found = found.value
    return found if isinstance(found, ast.Name | ast.Attribute) else None


def _is_change(name: str) -> bool:
    """A method that changes its object; torch's own end with an underscore."""
    return name in _CHANGES or (name.endswith("_") and not name.startswith("_"))


def _is_ours(iterable: ast.expr) -> bool:
    """Whether a loop goes over what the job itself gives, with nothing around it."""
    method = iterable.func if isinstance(iterable, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr in _OURS


def _is_enumerate(node: ast.For) -> bool:
    call = node.iter
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and (call.func.id == "enumerate")
    )


def _first_of(target: ast.expr) -> ast.expr:
    return target.elts[0] if isinstance(target, ast.Tuple | ast.List) and target.elts else target


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _path(node: ast.expr) -> str:
    """How a value is known: "t0" in its scope, ".t0" and ".stats['time']" everywhere; "" if not."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return f".{name}"
        case ast.Subscript(value=value, slice=ast.Constant(value=key)):
            inner = _path(value)
            return f"{inner}[{key!r}]" if inner else ""
    return ""


def _makes_object(call: ast.Call) -> bool:
    """By the custom that classes begin with a capital: what they keep of their arguments is known
    by name only."""
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    return name[:1].isupper()


def _names_machine(node: ast.Call | ast.Subscript) -> bool:
    keys = [node.slice] if isinstance(node, ast.Subscript) else node.args
    key = keys[0] if keys else None
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return False
    return any(word in key.value.upper() for word in _MACHINE_WORDS)


def _asks_for_shadow(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "is_shadow" for node in ast.walk(test)
    )


def short_name(path: str) -> str:
    """Of a file, for people."""
    return os.path.basename(path)
