# SPDX-License-Identifier: Apache-2.0
"""What the source of a script's own files says of its variables: which attributes, globals and
containers are changed after the set-up, that is in a function other than a constructor, or in a
loop; and all that its neighbours find.

Names of attributes stand for themselves, whatever object they belong to: `.t0`. A part of a
container that is known by a constant is written with it: `stats['time']`.
"""

import ast
import os
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache, partial
from types import CodeType

from trainmover.installed import is_installed
from trainmover.state.script.code import grammar
from trainmover.state.script.code.asked_for import asked_by_name, asked_otherwise
from trainmover.state.script.code.carried import carried_attributes
from trainmover.state.script.code.changing import CHANGES
from trainmover.state.script.code.functions import READ_BY, SHOWN_BY, Changes, functions_in
from trainmover.state.script.code.grammar import CONSTRUCTORS
from trainmover.state.script.code.handed import changed_parts, given, handed
from trainmover.state.script.code.in_force import SETTERS
from trainmover.state.script.code.read_by_name import merge, read_by
from trainmover.state.script.code.read_inside import read_inside
from trainmover.state.script.code.scopes import MODULE, UNKNOWN, File, Scope, Source
from trainmover.state.script.code.syntax import called_name, last_name, walk
from trainmover.state.script.code.times.acting import acting
from trainmover.state.script.code.times.clocks import Clocks
from trainmover.state.script.code.times.guarded import read_as_values
from trainmover.state.script.code.times.telling import asks_clock
from trainmover.torch_internals.distributed.backends import PREFIX

_BUILDS = frozenset(
    {"add_module", "register_module", "set_submodule", "register_parametrization"}
    | {"remove_parametrizations", "l1_unstructured", "random_unstructured", "ln_structured"}
    | {"global_unstructured", "custom_from_mask", "register_parameter", "register_buffer"}
)
_OF_PASSES = frozenset({"__iter__", "__next__", "__len__", "set_epoch", "load_state_dict"})
_ABOVE_MAX = 2
"""Folders above a file in which what it imports is looked for."""
FUNCTIONS_MAX = 512
"""Of so many a script's attributes are followed through all of its files together."""


@lru_cache(maxsize=512)
def source_of(path: str) -> Source | None:
    """None if the file cannot be read as Python."""
    tree = tree_of(path)
    if tree is None:
        return None
    return read(tree, "" if is_installed(path) else os.path.dirname(path))


@lru_cache(maxsize=512)
def _telling_in(path: str) -> Set[str]:
    """Functions of a file that return the time by themselves: what it imports is not followed, so
    that it does not matter which file is read first."""
    tree = tree_of(path)
    asks = tree is not None and any(asks_clock(full) for _, full in grammar.imports(tree))
    return read(tree).telling if tree is not None and asks else frozenset()


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


def read(tree: ast.Module, folder: str = "") -> Source:
    """All that is known of one file.

    folder: where it lies, and others of the script that it imports; "": none is looked for
    """
    grammar.mangle(tree, "")
    reader = _Reader(tree)
    for node in walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            reader.source.written[node.name] = node.lineno
    reader.stores()
    reader.reads()
    told, acts = partial(_returns_time, folder), partial(_acts_on_others, folder)
    Clocks(reader.file, reader.source, told, acts).find()
    reader.source.given, reader.source.functions = given(tree), functions_in(tree)
    reader.source.handed = handed(tree)
    reader.source.read_by = read_by(
        (node for node, _ in reader.file.functions), reader.file.imports
    )
    reader.source.stays, reader.source.tree = reader.stays(), tree
    return reader.source


def _returns_time(folder: str, function: str) -> bool:
    """Whether a function of another file of the script does, by its full name."""
    module, _, name = function.rpartition(".")
    path = _file_of(module, folder) if folder and module else None
    return path is not None and name in _telling_in(path)


def _acts_on_others(folder: str, kind: str) -> bool:
    """Whether a class of another file of the script does, by its full name."""
    module, _, name = kind.rpartition(".")
    path = _file_of(module, folder) if folder and module else None
    return path is not None and name in _acting_in(path)


@lru_cache(maxsize=512)
def _acting_in(path: str) -> Set[str]:
    tree = tree_of(path)
    return acting(tree) if tree is not None else frozenset()


@lru_cache(maxsize=4096)
def _file_of(module: str, folder: str) -> str | None:
    """Of a module that lies beside a file in this folder, or above it."""
    names = module.lstrip(".")
    level = len(module) - len(names)
    for _ in range(level - 1):
        folder = os.path.dirname(folder)
    for _ in range(1 if level else 1 + _ABOVE_MAX):
        whole = os.path.join(folder, *names.split("."))
        for path in (f"{whole}.py", os.path.join(whole, "__init__.py")):
            if os.path.isfile(path):
                return None if is_installed(path) else path
        folder = os.path.dirname(folder)
    return None


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
        whole.noted |= one.noted
        whole.by_others |= one.by_others
        whole.hung |= one.hung
        whole.changed |= one.changed
        whole.targets |= one.targets
        whole.handed |= one.handed
        whole.globals |= one.globals
        whole.again |= one.again
        whole.loaded |= one.loaded
        merge(whole.read_by, one.read_by)
        whole.clocks |= one.clocks
        whole.apart |= one.apart
        whole.fed |= one.fed
        whole.there |= one.there
        for name, kept in one.keeps.items():
            whole.keeps.setdefault(name, set()).update(kept)
        whole.guarded |= one.guarded
        whole.by_real |= one.by_real
        whole.values |= one.values
        for known, stored_by in (
            (whole.told, one.told),
            (whole.untold, one.untold),
            (whole.holders, one.holders),
        ):
            for name, owners in stored_by.items():
                known.setdefault(name, set()).update(owners)
        whole.asked |= one.asked
        whole.dynamic = whole.dynamic or one.dynamic
        whole.environ |= one.environ
        whole.settings |= one.settings
        whole.foreign |= one.foreign
        whole.patches |= one.patches
        whole.rebuilds = whole.rebuilds or one.rebuilds
        whole.exchanges = whole.exchanges or one.exchanges
        whole.hooks = whole.hooks or one.hooks
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


def scope_of(code: CodeType) -> Scope:
    """Of the function whose code it is; an empty one if its file cannot be read."""
    source = source_of(code.co_filename)
    first = 0 if code.co_name == MODULE[0] else code.co_firstlineno
    return source.scopes.get((code.co_name, first), UNKNOWN) if source else UNKNOWN


class _Reader:
    """Walks one file, function by function."""

    def __init__(self, tree: ast.Module) -> None:
        self.source = Source()
        self.file = File(tree)
        self._once = grammar.called_once(tree)
        self._by_name: set[str] = set()  # Attributes that are stored to as by setattr().
        self._set_up = (
            frozenset[str]() if grammar.begins_anew(self.file.functions) else CONSTRUCTORS
        )
        asked = {name for node in walk(tree) for _, name in _asked_by_name(node)}
        asked |= asked_otherwise(tree)
        loads = (one for one in walk(tree) if isinstance(one, ast.Attribute))
        self.source.loaded = asked | {one.attr for one in loads if isinstance(one.ctx, ast.Load)}
        self.source.values = asked | read_as_values(tree)

    # --- stores -----------------------------------------------------------------------------------

    def stores(self) -> None:
        for key, owner, nodes in self.file.bodies:
            scope = self.source.scopes.setdefault(key, Scope())
            in_loops = (
                set(grammar.in_loops(nodes)) if key == MODULE or key[0] in self._set_up else None
            )
            declared = {n for node in nodes if isinstance(node, ast.Global) for n in node.names}
            repeated = set(grammar.in_loops(nodes))
            aliases = grammar.aliases(nodes)
            self.source.again |= grammar.stored_again(nodes, repeated)
            for node in nodes:
                self._patch(node)
                if key[0] not in _OF_PASSES | CONSTRUCTORS and grammar.is_stored(node):
                    self.source.noted.add(node.attr)  # type: ignore[attr-defined]
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    self.source.hung |= {node.attr} if last_name(node.value) != "self" else set()
                later = in_loops is None or id(node) in in_loops
                later = later and key[0] not in self._set_up
                if key[0] in self._set_up:  # What it does to others it does whenever it is called.
                    later = not grammar.is_on_self(node)
                self._store(node, scope, owner, declared, later=later)
                if later or grammar.makes_setter(node):
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
            stored = [self.file.dotted(node)]
        else:
            named = [
                (holder, name) for holder, name in grammar.stored_by_name(node) if holder and name
            ]
            stored = [
                f"{owner}.{name}" for holder, name in named if (owner := self.file.dotted(holder))
            ]
        self.source.patches |= {one for one in stored if one.partition(".")[0] in self.file.modules}

    def _store_in_process(self, node: ast.AST) -> None:
        """The environment, and what torch or numpy are set to."""
        match node:
            case ast.Subscript(value=value, slice=key, ctx=ast.Store() | ast.Del()):
                if self.file.dotted(value) == "os.environ":
                    self.source.environ[grammar.constant(key) or "*"] = node.lineno
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args):
                if name in CHANGES and self.file.dotted(value) == "os.environ":
                    self.source.environ[(grammar.constant(args[0]) if args else None) or "*"] = (
                        node.lineno
                    )
                self._set_process(node, name)
            case ast.Call(func=ast.Name() as name):
                self._set_process(node, self.file.dotted(name).rpartition(".")[2])
            case ast.Attribute(ctx=ast.Store()):
                dotted = self.file.dotted(node)
                if dotted.startswith(PREFIX):
                    self.source.settings[PREFIX] = node.lineno
                if dotted.partition(".")[0] in self.file.modules:
                    self.source.foreign[dotted] = node.lineno

    def _name_environment(self, node: ast.AST) -> None:
        """Another name for it, by which anything may be set."""
        match node:
            case ast.Assign(value=value) | ast.NamedExpr(value=value) | ast.Return(value=value):
                given = [value] if value else []
            case ast.Call(args=given):
                given = [] if called_name(node) in READ_BY | SHOWN_BY else given
            case _:
                given = []
        if any(self.file.dotted(one) == "os.environ" for one in given):
            self.source.environ.setdefault("*", node.lineno)  # type: ignore[attr-defined]

    def _rebuild(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()], value=ast.Call() as call):
                rebuilds = grammar.makes_object(call)
            case ast.Attribute(attr="__class__", ctx=ast.Store()):
                rebuilds = True
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=args):
                is_hook = name.startswith("register_") and name.endswith("hook")
                is_hook |= name == "remove" and not args
                rebuilds = is_hook or name in _BUILDS
                self.source.hooks = node.lineno if is_hook else self.source.hooks
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
        self.source.read = read_inside(self.file.tree)
        for inner in walk(self.file.tree):
            self._name_environment(inner)
            match inner:
                case ast.Attribute(value=ast.Name(id="self")):
                    pass  # Of an object of the script's own.
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    self.source.asked.add(name)

    def stays(self) -> set[str]:
        """Attributes that are never temporary."""
        known = {name for name in self.source.attributes if name.endswith("__")}  # Python's own.
        return known | self._by_name | self.source.written.keys()


def _asked_by_name(node: ast.AST) -> frozenset[tuple[str, str]]:
    return asked_by_name(node) if isinstance(node, ast.Call) else frozenset()
