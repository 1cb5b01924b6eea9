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
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType

from trainmover.state.script.code import grammar
from trainmover.state.script.code.asked_for import asked_by_name, asked_otherwise
from trainmover.state.script.code.carried import carried_attributes
from trainmover.state.script.code.changing import CHANGES, is_change, root_of
from trainmover.state.script.code.functions import (
    OF_OBJECTS,
    Changes,
    Functions,
    changes_first,
    functions_in,
)
from trainmover.state.script.code.guarded import asks_for_shadow, read_elsewhere
from trainmover.state.script.code.handed import Parts, changed_parts, given, handed
from trainmover.state.script.code.in_force import SETTERS
from trainmover.state.script.code.syntax import (
    Function,
    called_name,
    children,
    last_name,
    walk,
)
from trainmover.torch_internals.distributed.backends import PREFIX

_CLOCK_MODULES = frozenset(
    {"time", "datetime", "timeit", "uuid", "socket", "platform", "getpass", "tempfile", "psutil"}
    | {"resource", "secrets", "pwd"}
)
_CLOCK_CALLS = frozenset(
    {"os.getpid", "os.getppid", "os.uname", "os.urandom", "os.times", "os.cpu_count"}
    | {"os.getloadavg", "os.getlogin", "multiprocessing.cpu_count", "threading.get_ident"}
    | {"os.sched_getaffinity", "shutil.disk_usage", "id"}
)
_TIMELESS = frozenset(
    {"timedelta", "strptime", "fromisoformat", "fromtimestamp", "fromordinal", "combine", "replace"}
    | {"date", "datetime", "timezone", "fromisocalendar", "UUID", "uuid3", "uuid5", "struct_time"}
    | {"mktime", "gmtime", "strftime", "localtime", "ctime", "asctime"}
)
"""Functions of these that give what they are given in another form; of some with no argument that
is the time."""
_CLOCK_ATTRIBUTES = frozenset(
    {"is_shadow", "elapsed_time", "memory_allocated", "max_memory_allocated", "memory_reserved"}
    | {"max_memory_reserved", "memory_stats", "mem_get_info"}
)
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__"})
_BUILDS = frozenset(
    {"add_module", "register_module", "set_submodule", "register_parametrization"}
    | {"remove_parametrizations", "l1_unstructured", "random_unstructured", "ln_structured"}
    | {"global_unstructured", "custom_from_mask", "register_parameter", "register_buffer"}
)
_MIXED = (ast.Tuple, ast.List, ast.Dict, ast.Call)
_CHOOSE = frozenset({"min", "max"})
_FEEDS = frozenset({"update", "add", "append", "push", "record", "put", "extend", "insert"})
Key = tuple[str, int]
"""Of a scope: its name, and the first line of its code object; a module's is 0."""
FUNCTIONS_MAX = 512
"""Of so many a script's attributes are followed through all of its files together."""
MODULE: Key = ("<module>", 0)
_Path = tuple[int, str]
"""A name with the id of its scope, an attribute with 0."""


@dataclass
class Scope:
    """One function, or the top of a file.

    clocks   names in it that tell the time or the machine
    apart    those of them that hold nothing else, whatever they are
    counts   first targets of `for` over enumerate(...): they count, whatever else they may equal
    given    targets of `for` over job.batches(...) and its kin: they follow the place that is kept
    lines    of the last store to each name
    own      parameters
    """

    clocks: set[str] = field(default_factory=set)
    apart: set[str] = field(default_factory=set)
    counts: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)
    lines: dict[str, int] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)


_UNKNOWN = Scope()


@dataclass
class Source:
    """Of one file, or of several together.

    attributes  that are stored to after the set-up, with the line of the last store
    by_class    those that methods store on their own object, by name of the class
    by_others   those that are stored on any other object
    temporary   attributes that are written before they are read, of several files together
    changed     names and attributes of containers that are changed in place
    handed      attributes that leave their object, so that others may change what they hold, with
                the line (`handed`); of several files also those whose parts do
    given       parts of attributes that are given to functions, of any file
    functions   of the file, with what they change of what they are given
    globals     that functions store to
    read        names that functions read and do not store: the file's globals, and names around
    clocks      attributes and parts that tell the time or the machine: ".t0", "stats['time']"
    apart       those of them that hold nothing else, whatever they are
    guarded     those of attributes that are stored only where `job.is_shadow` is asked
    values      names and attributes that are read as values anywhere else (`guarded`)
    told        attributes that are given such a value, each with the classes whose methods give it
                to their own object; "" where it is given from elsewhere
    untold      the same of other values; what they are reset to, or made with, is none
    asked       attributes that are read of any other object than the method's own
    loaded      attributes that are read, of any object
    dynamic     line that stores attributes by names that only the run knows; 0: none
    written     classes and functions, with their lines
    foreign     attributes of imported modules that are stored to, with the line: "torch.nn.relu"
    patches     attributes of imported modules and of what is in them that are stored to at any time
    rebuilds    line that puts another layer into a module, or a hook, or takes one out; 0: none
    exchanges   line that may do so, as far as can be seen from it; 0: none
    environ     variables of the environment that are set after the set-up, with the line; "*": any
    settings    calls that change what is in force for the whole process after the set-up, with the
                line: SETTERS, or PREFIX where it is stored to
    targets     attributes, globals and containers that loops store to: they show how far an
                iterator is
    stays       attributes that are never temporary: Python's own, those stored to by their name
    tree        of the file; None of several together
    """

    scopes: dict[Key, Scope] = field(default_factory=dict)
    attributes: dict[str, int] = field(default_factory=dict)
    by_class: dict[str, set[str]] = field(default_factory=dict)
    by_others: set[str] = field(default_factory=set)
    temporary: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    handed: dict[str, int] = field(default_factory=dict)
    given: Parts = field(default_factory=dict)
    functions: Functions = field(default_factory=Functions)
    globals: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    clocks: set[str] = field(default_factory=set)
    apart: set[str] = field(default_factory=set)
    guarded: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    told: dict[str, set[str]] = field(default_factory=dict)
    untold: dict[str, set[str]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    dynamic: int = 0
    written: dict[str, int] = field(default_factory=dict)
    foreign: dict[str, int] = field(default_factory=dict)
    patches: set[str] = field(default_factory=set)
    rebuilds: int = 0
    exchanges: int = 0
    environ: dict[str, int] = field(default_factory=dict)
    settings: dict[str, int] = field(default_factory=dict)
    targets: set[str] = field(default_factory=set)
    stays: set[str] = field(default_factory=set)
    tree: ast.Module | None = None


@lru_cache(maxsize=512)
def source_of(path: str) -> Source | None:
    """None if the file cannot be read as Python."""
    tree = tree_of(path)
    return None if tree is None else read(tree)


@lru_cache(maxsize=512)
def tree_of(path: str) -> ast.Module | None:
    """Its syntax alone: a large file is read so in a third of the time."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None
    grammar.mangle(tree, "")
    return tree


def read(tree: ast.Module) -> Source:
    """All that is known of one file."""
    grammar.mangle(tree, "")
    reader = _Reader(tree)
    for node in walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            reader.source.written[node.name] = node.lineno
    reader.stores()
    reader.reads()
    reader.clocks()
    reader.source.given, reader.source.functions = given(tree), functions_in(tree)
    reader.source.handed = handed(tree)
    reader.source.stays, reader.source.tree = reader.stays(), tree
    return reader.source


def temporary_in(
    sources: Sequence[Source], at: tuple[frozenset[int], ...] | None = None
) -> set[str]:
    """Attributes that are written before they are read, wherever that is in these files: none of
    those that are stored to by names that only the run knows, since so may they be read.

    at: as in `carried_attributes`
    """
    known = {name for one in sources if not one.dynamic for name in one.attributes}
    unsure = {name for one in sources for name in (one.attributes if one.dynamic else one.stays)}
    many = sum(len(one.functions.bodies) for one in sources)
    carried = _carried_together if many <= FUNCTIONS_MAX else _carried_apart
    return known - unsure - carried(sources, at)


def _carried_together(sources: Sequence[Source], at: tuple[frozenset[int], ...] | None) -> Set[str]:
    return carried_attributes(tuple(one.tree for one in sources if one.tree is not None), at)


def _carried_apart(sources: Sequence[Source], at: tuple[frozenset[int], ...] | None) -> Set[str]:
    """Each file is followed by itself: to follow all takes long. What another one reads may be read
    at any time."""
    found, times = set[str](), Counter(name for one in sources for name in one.attributes)
    for number, one in enumerate(sources):
        inside = _carried_together([one], None if at is None else at[number : number + 1])
        found |= inside & one.attributes.keys()
        found |= {n for n in one.loaded if times[n] > (n in one.attributes)}
    return found


def together(sources: Iterable[Source]) -> Source:
    """What holds in a script of several files. Scopes are left out: each is of its own file."""
    whole, sources = Source(), [*sources]
    whole.handed = _changed_parts(sources)
    for one in sources:
        whole.attributes |= one.attributes
        for name, stored in one.by_class.items():
            whole.by_class.setdefault(name, set()).update(stored)
        whole.by_others |= one.by_others
        whole.changed |= one.changed
        whole.targets |= one.targets
        whole.handed |= one.handed
        whole.globals |= one.globals
        whole.clocks |= one.clocks
        whole.apart |= one.apart
        whole.guarded |= one.guarded
        whole.values |= one.values
        for known, stored_by in ((whole.told, one.told), (whole.untold, one.untold)):
            for name, owners in stored_by.items():
                known.setdefault(name, set()).update(owners)
        whole.asked |= one.asked
        whole.dynamic = whole.dynamic or one.dynamic
        whole.environ |= one.environ
        whole.settings |= one.settings
        whole.foreign |= one.foreign
        whole.rebuilds = whole.rebuilds or one.rebuilds
        whole.exchanges = whole.exchanges or one.exchanges
    read = {f".{name}" for name in whole.guarded & whole.values}
    whole.clocks -= read | {f".{name}" for name in whole.untold}
    whole.apart -= read
    whole.temporary = temporary_in(sources)
    return whole


def _changed_parts(sources: list[Source]) -> dict[str, int]:
    """Attributes of which a part is given to a function of one of these files that changes it."""
    changes = Changes(one.functions for one in sources)
    found: dict[str, int] = {}
    for one in sources:
        found |= changed_parts(one.given, changes)
    return found


def tells_in(source: Source, name: str, kinds: Iterable[str]) -> bool:
    """Whether an attribute tells the time in objects of these classes, though others give other
    values to one of that name: a timer's total, beside a meter's."""
    told, untold = source.told.get(name, set()), source.untold.get(name, set())
    return "" not in told | untold and bool(told & {*kinds}) and not untold & {*kinds}


def scope_of(code: CodeType) -> Scope:
    """Of the function whose code it is; an empty one if its file cannot be read."""
    source = source_of(code.co_filename)
    first = 0 if code.co_name == MODULE[0] else code.co_firstlineno
    return source.scopes.get((code.co_name, first), _UNKNOWN) if source else _UNKNOWN


def scope_key(node: Function) -> Key:
    """As the code object of the function has it."""
    return node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])


class _Reader:
    """Walks one file, function by function."""

    def __init__(self, tree: ast.Module) -> None:
        self.source = Source()
        self._tree = tree
        self._imports = dict(grammar.imports(tree))
        self._modules = {name.partition(".")[0] for name in self._imports.values()}
        self._functions = list(grammar.functions(tree, ""))
        self._written = {node.name for node, _ in self._functions}
        self._owners: dict[str, set[str]] = {}  # Classes with a method of that name.
        for node, owner in self._functions:
            self._owners.setdefault(node.name, set()).add(owner)
        self._made_of_class: dict[str, set[str]] = {}  # Names of what is made by calling a class.
        for one in walk(tree):
            for target, value in grammar.stores_of(one):
                self._made_of_class.setdefault(last_name(target), set()).add(called_name(value))
        self._bodies: list[tuple[Key, str, list[ast.AST]]] = [(MODULE, "", list(grammar.own(tree)))]
        for node, owner in self._functions:
            self._bodies.append((scope_key(node), owner, list(grammar.own(node))))
        self._once = grammar.called_once(tree)
        self._kept = {
            one.attr
            for one in walk(tree)
            if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load)
        }
        self._parameters, self._made_by = dict[str, list[str]](), dict[str, Key]()
        for name, parameters, made_by in grammar.callables(tree):
            self._parameters[name] = parameters
            if made_by is not None:
                self._made_by[name] = scope_key(made_by)
        self._by_name: set[str] = set()  # Attributes that are stored to as by setattr().
        self._telling: set[str] = set()  # Functions that return the time.
        self._parts: dict[str, set[object]] = {}  # Those of which a part of the result is one.
        self._untelling = {"get", "pop", "popleft", "popitem", "setdefault"}  # Containers' own.
        self._mixed: set[_Path] = set()  # Names and attributes that only sometimes do.
        self._rows_tell = True  # Also those that have constants beside the time.
        self._apart: set[_Path] = set()  # Those that are left out whatever they are given.
        asked = {name for node in walk(tree) for _, name in _asked_by_name(node)}
        loads = (one for one in walk(tree) if isinstance(one, ast.Attribute))
        self.source.loaded = {one.attr for one in loads if isinstance(one.ctx, ast.Load)}
        self.source.loaded |= asked_otherwise(tree) | asked
        self.source.values = read_elsewhere(tree) | asked_otherwise(tree) | asked

    # --- stores -----------------------------------------------------------------------------------

    def stores(self) -> None:
        for key, owner, nodes in self._bodies:
            scope = self.source.scopes.setdefault(key, Scope())
            in_loops = (
                set(grammar.in_loops(nodes)) if key == MODULE or key[0] in _CONSTRUCTORS else None
            )
            declared = {n for node in nodes if isinstance(node, ast.Global) for n in node.names}
            repeated = set(grammar.in_loops(nodes))
            aliases = grammar.aliases(nodes)
            for node in nodes:
                self._patch(node)
                later = in_loops is None or id(node) in in_loops
                later = later and key[0] not in _CONSTRUCTORS
                if key[0] in _CONSTRUCTORS:  # What it does to others it does whenever it is called.
                    later = not grammar.is_on_self(node)
                self._store(node, scope, owner, declared, later=later)
                if later:
                    self._store_by_name(node, owner)
                    self._store_through(node, aliases, owner)
                if later and (key[0] not in self._once or id(node) in repeated):
                    self._store_in_process(node)
                    self._rebuild(node)

    def _store(
        self, node: ast.AST, scope: Scope, owner: str, declared: set[str], *, later: bool
    ) -> None:
        if isinstance(node, ast.arg):
            scope.own.add(node.arg)
        if isinstance(node, ast.For | ast.AsyncFor):
            self.source.targets |= grammar.held_targets(node.target, declared)
        if isinstance(node, ast.For):
            kept = grammar.is_ours(node.iter)
            scope.given.update(grammar.names(node.target) if kept else ())
            scope.counts.update(
                grammar.names(grammar.first_of(node.target)) if grammar.is_enumerate(node) else ()
            )
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            scope.lines[node.id] = max(node.lineno, scope.lines.get(node.id, 0))
            if node.id in declared:
                self.source.globals.add(node.id)
                at = self.source.scopes[MODULE].lines
                at[node.id] = max(node.lineno, at.get(node.id, 0))
        elif later and isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            self._attribute(node, owner)
        elif later and (changed := grammar.changed_in_place(node)) is not None:
            name = changed.attr if isinstance(changed, ast.Attribute) else changed.id
            self.source.changed.add(name)
            if isinstance(changed, ast.Attribute):
                self.source.attributes[name] = max(
                    changed.lineno, self.source.attributes.get(name, 0)
                )
                self._note_owner(changed, owner)
            else:
                scope.lines[name] = max(changed.lineno, scope.lines.get(name, 0))

    def _store_through(
        self, node: ast.AST, aliases: dict[str, list[ast.Attribute]], owner: str
    ) -> None:
        """What is changed in place by another name: for slow in self.slow: slow.add_(...)."""
        for attribute in aliases.get(grammar.changed_by_name(node), ()):
            self.source.changed.add(attribute.attr)
            self._attribute(attribute, owner)

    def _attribute(self, node: ast.Attribute, owner: str) -> None:
        known = self.source.attributes
        known[node.attr] = max(node.lineno, known.get(node.attr, 0))
        if node.attr == "__dict__":  # All attributes have others in their place.
            self.source.dynamic = node.lineno
        self._note_owner(node, owner)

    def _note_owner(self, node: ast.Attribute, owner: str) -> None:
        on_self = isinstance(node.value, ast.Name) and node.value.id == "self" and owner
        if on_self:
            self.source.by_class.setdefault(owner, set()).add(node.attr)
        else:
            self.source.by_others.add(node.attr)

    def _store_by_name(self, node: ast.AST, owner: str) -> None:
        """As by setattr(thing, "name", value), vars(thing)["name"] = value."""
        for holder, name in grammar.stored_by_name(node):
            if name is None:
                self.source.dynamic = node.lineno  # type: ignore[attr-defined]
            elif holder is None:
                self.source.globals.add(name)
                self.source.scopes[MODULE].lines[name] = node.lineno  # type: ignore[attr-defined]
            else:
                self._by_name.add(name)
                attribute = ast.Attribute(holder, name, ast.Store(), lineno=node.lineno)  # type: ignore[attr-defined]
                self._attribute(attribute, owner)

    def _patch(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            stored = [self._dotted(node)]
        else:
            named = [
                (holder, name) for holder, name in grammar.stored_by_name(node) if holder and name
            ]
            stored = [
                f"{owner}.{name}" for holder, name in named if (owner := self._dotted(holder))
            ]
        self.source.patches |= {one for one in stored if one.partition(".")[0] in self._modules}

    def _store_in_process(self, node: ast.AST) -> None:
        """The environment, and what torch or numpy are set to."""
        match node:
            case ast.Subscript(value=value, slice=key, ctx=ast.Store() | ast.Del()):
                if self._dotted(value) == "os.environ":
                    self.source.environ[grammar.constant(key) or "*"] = node.lineno
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args):
                if name in CHANGES and self._dotted(value) == "os.environ":
                    self.source.environ[(grammar.constant(args[0]) if args else None) or "*"] = (
                        node.lineno
                    )
                self._set_process(node, name)
            case ast.Call(func=ast.Name() as name):
                self._set_process(node, self._dotted(name).rpartition(".")[2])
            case ast.Attribute(ctx=ast.Store()):
                dotted = self._dotted(node)
                if dotted.startswith(PREFIX):
                    self.source.settings[PREFIX] = node.lineno
                if dotted.partition(".")[0] in self._modules:
                    self.source.foreign[dotted] = node.lineno

    def _rebuild(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()], value=ast.Call() as call):
                rebuilds = grammar.makes_object(call)
            case ast.Attribute(attr="__class__", ctx=ast.Store()):
                rebuilds = True
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=args):
                is_hook = name.startswith("register_") and name.endswith("hook")
                rebuilds = is_hook or name in _BUILDS or (name == "remove" and not args)
            case _:
                rebuilds = False
        if rebuilds:
            self.source.rebuilds = node.lineno  # type: ignore[attr-defined]
        if rebuilds or grammar.may_exchange(node):
            self.source.exchanges = node.lineno  # type: ignore[attr-defined]

    def _set_process(self, node: ast.expr, called: str) -> None:
        if called in SETTERS:
            self.source.settings[called] = node.lineno

    def reads(self) -> None:
        """Names, of functions and lambdas; and attributes."""
        for node, _ in self._functions:
            names = [part for part in grammar.own(node) if isinstance(part, ast.Name)]
            loaded = {name.id for name in names if isinstance(name.ctx, ast.Load)}
            own = {name.id for name in names if isinstance(name.ctx, ast.Store)}
            own -= self.source.globals
            self.source.read |= loaded - own - {one.arg for one in walk(node.args)
                                                if isinstance(one, ast.arg)}  # fmt: skip
        for inner in walk(self._tree):
            match inner:
                case ast.Lambda():
                    taken = {one.arg for one in walk(inner.args) if isinstance(one, ast.arg)}
                    self.source.read |= grammar.names(inner.body) - taken
                case ast.Attribute(value=ast.Name(id="self")):
                    pass  # Of an object of the script's own.
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    self.source.asked.add(name)

    def stays(self) -> set[str]:
        """Attributes that are never temporary."""
        known = {name for name in self.source.attributes if name.endswith("__")}  # Python's own.
        return known | self._by_name | self.source.written.keys()

    # --- clocks -----------------------------------------------------------------------------------

    def clocks(self) -> None:
        """Until nothing new is found: what derives from a clock makes others derive from it. What
        is given other values too is none, and nothing derives from it."""
        self._mixed |= self._beside()
        while True:
            self._derive()
            mixed, untelling = self._stored_otherwise(), self._return_otherwise()
            if mixed <= self._mixed and not untelling:
                self._set_apart()
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
        for key, _, nodes in self._bodies:
            scope = self.source.scopes[key]
            for node in nodes:
                for target, value in grammar.stores_of(node):
                    path = grammar.path(target)
                    if path and grammar.is_row(value) and self._parts_of(value, scope, path):
                        found.add(_known(target, scope))
        self._forget()
        return found

    def _forget(self) -> None:
        self.source.clocks.clear()
        self._telling.clear()
        self._parts.clear()
        for scope in self.source.scopes.values():
            scope.clocks.clear()

    def _set_apart(self) -> None:
        of = {id(scope): scope.apart for scope in self.source.scopes.values()}
        for owner, path in self._apart:
            of.get(owner, self.source.apart).add(path)

    def _derive(self) -> None:
        for _ in range(12):
            before = self._count()
            for key, _, nodes in self._bodies:
                scope = self.source.scopes[key]
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
        for key, _, nodes in self._bodies:
            scope = self.source.scopes[key]
            for node in nodes:
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    name = node.func.id
                    for parameter, value in grammar.arguments(node, self._parameters.get(name, [])):
                        told.setdefault((name, parameter), []).append(self._only(value, scope))
        for (name, parameter), each in told.items():
            made_by = self._made_by.get(name)
            if all(each) and made_by is not None:
                self._note(parameter, self.source.scopes[made_by])
            elif all(each):
                self._note(f".{parameter}", self.source.scopes[MODULE])

    def _only(self, value: ast.expr | None, scope: Scope) -> bool:
        """Whether it tells the time, and nothing else."""
        if value is None or not self._tells(value, scope):
            return False
        return not self._parts_of(value, scope)

    def _stored_otherwise(self) -> set[_Path]:
        """Names and attributes that tell the time, and are given something else, too."""
        self.source.told, self.source.untold = {}, {}
        found = set[_Path]()
        for key, owner, nodes in self._bodies:
            scope = self.source.scopes[key]
            for node in nodes:
                for target, value in grammar.stores_of(node):
                    known, own = _known(target, scope), owner if grammar.is_on_self(target) else ""
                    is_made = own and key[0] in _CONSTRUCTORS
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
                        stored_by = self.source.told if tells else self.source.untold
                        stored_by.setdefault(path[1:], set()).add(own)
                    elif path in scope.clocks and not tells:
                        found.add(known)
        self._changed_otherwise()
        both = self.source.clocks & {f".{name}" for name in self.source.untold}
        return found | {(0, path) for path in both}

    def _changed_otherwise(self) -> None:
        """Attributes that are changed in place with something else than the time, by the classes
        whose methods do so to their own object."""
        for key, owner, nodes in self._bodies:
            scope = self.source.scopes[key]
            for node in nodes:
                changed = self._changed_with(node) if isinstance(node, ast.Call) else None
                if changed is None:
                    continue
                attribute, values = changed
                values = [one for one in values if grammar.varies(one)]
                if values and not all(self._tells(one, scope) for one in values):
                    own = owner if grammar.is_on_self(attribute) else ""
                    self.source.untold.setdefault(attribute.attr, set()).add(own)

    def _changed_with(self, call: ast.Call) -> tuple[ast.Attribute, list[ast.expr]] | None:
        """An attribute that a call may change, and what it is given beside."""
        given = grammar.given(call)
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Attribute() as held, attr=name)):
                if is_change(name):
                    return held, given
            case ast.Call(args=[ast.Attribute() as held, *_]):
                if changes_first(called_name(call)):
                    return held, given[1:]
        return None

    def _return_otherwise(self) -> set[str]:
        """Functions of which one tells the time, and another one of that name does not."""
        found = set[str]()
        for (name, line), _, nodes in self._bodies:
            if name in self._telling:
                scope = self.source.scopes[name, line]
                values = [one.value for one in nodes if isinstance(one, ast.Return) and one.value]
                if values and not any(self._tells(value, scope) for value in values):
                    found.add(name)
        return found

    def _count(self) -> int:
        scopes = sum(len(scope.clocks) for scope in self.source.scopes.values())
        parts = sum(map(len, self._parts.values()))
        return scopes + len(self.source.clocks) + len(self._telling) + parts

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
                    self.source.clocks.add(f".{keyword.arg}")
        elif self._tells(value, scope, but):
            self._mark(target, scope)

    def _guarded(self, target: ast.Name | ast.Attribute, scope: Scope) -> None:
        name = target.id if isinstance(target, ast.Name) else target.attr
        if name not in self.source.values:
            if isinstance(target, ast.Attribute):
                self.source.guarded.add(name)
            self._apart.add(_known(target, scope))
            self._mark(target, scope)

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
        if (0 if path.startswith(".") else id(scope), path) in self._mixed:
            return
        (self.source.clocks if path.startswith(".") else scope.clocks).add(path)

    def _fed(self, nodes: list[ast.AST], scope: Scope) -> None:
        """Objects that are given nothing but the time: `batch_time.update(time.time() - end)`."""
        fed: dict[str, list[bool]] = {}
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                path = grammar.path(node.func.value)
                if node.func.attr in _FEEDS and path and path != "self":
                    first, *others = [*node.args, *(one.value for one in node.keywords)]
                    tells = self._tells(first, scope) and not self._parts_of(first, scope)
                    only = all(grammar.is_size(one) or self._tells(one, scope) for one in others)
                    fed.setdefault(path, []).append(tells and only)
        for path, told in fed.items():
            if all(told):
                self._apart.add((0 if path.startswith(".") else id(scope), path))
                self._note(path, scope)

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
                return [body, orelse]
            case ast.Subscript(value=held):  # Where it lies says nothing of what it is.
                return [held]
            case ast.Dict(values=values):
                return [*values]
            case ast.DictComp(value=held, generators=generators):
                return [held, *generators]
            case ast.Attribute(attr=name) if name in self._kept:
                return []  # Of an object that was made with the time: it is judged by itself.
        if isinstance(node, ast.Call) and called_name(node) in self._written | _CHOOSE:
            given = grammar.given(node)
            others = [one for one in given if grammar.varies(one) and not _is(one, but)]
            return [*others] if all(self._tells(one, scope) for one in others) else []
        return children(node)

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
            case ast.Call() if (name := called_name(value)) not in self._telling:
                if name in self._parts:
                    return self._parts[name]
                given = (self._parts_of(one, scope, but) for one in grammar.given(value))
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
                top = self.source.scopes[MODULE].clocks
                return name in scope.clocks or (name in top and not _is_own(name, scope))
            case ast.Call(func=func):
                dotted = "" if _is_own(root_of(func), scope) else self._dotted(func)
                if dotted in _CLOCK_CALLS or dotted.partition(".")[0] in _CLOCK_MODULES:
                    is_form = dotted.rpartition(".")[2] in _TIMELESS
                    return not (is_form and (node.args or node.keywords))
                last = func.attr if isinstance(func, ast.Attribute) else dotted
                return self._is_telling(func, last) or (
                    dotted in ("os.getenv", "os.environ.get") and grammar.asks_machine(node)
                )
            case ast.Attribute(attr=name):
                known = name in _CLOCK_ATTRIBUTES and name not in self._kept
                return known or f".{name}" in self.source.clocks
            case ast.Subscript(value=container):
                if self._dotted(container) == "os.environ":
                    return grammar.asks_machine(node)
                if isinstance(container, ast.Call) and isinstance(node.slice, ast.Constant):
                    return node.slice.value in self._parts.get(called_name(container), ())
                path = grammar.path(node)
                return bool(path) and (path in scope.clocks or path in self.source.clocks)
        return False

    def _is_telling(self, function: ast.expr, name: str) -> bool:
        """Whether a function of that name returns the time. What tensors and containers have by the
        same name (`losses.sum()`) does only where its object is known to be made of that class."""
        if name not in self._telling:
            return False
        if not isinstance(function, ast.Attribute) or name not in OF_OBJECTS:
            return True
        made_of = self._made_of_class.get(last_name(function.value), set())
        return bool(made_of & self._owners.get(name, set()))

    def _dotted(self, node: ast.expr) -> str:
        """The full name of what is called, as far as imports tell: "time.perf_counter"; "" of an
        attribute of what is none."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        if parts and node.id not in self._imports:
            return ""
        return ".".join([self._imports.get(node.id, node.id), *reversed(parts)])


def _asked_by_name(node: ast.AST) -> frozenset[tuple[str, str]]:
    return asked_by_name(node) if isinstance(node, ast.Call) else frozenset()


def _is_own(name: str, scope: Scope) -> bool:
    """Whether it is none of the file's: `time` may be a parameter, or a step of a diffusion."""
    return name in scope.own or name in scope.lines


def _is(node: ast.AST, path: str) -> bool:
    return bool(path) and isinstance(node, ast.expr) and grammar.path(node) == path


def _known(target: ast.expr, scope: Scope) -> _Path:
    path = grammar.path(target)
    return (0 if path.startswith(".") else id(scope), path)


def short_name(path: str) -> str:
    """Of a file, for people."""
    return os.path.basename(path)
