# SPDX-License-Identifier: Apache-2.0
"""Code of the script and what it closes over: functions, cells, classes, modules.

Code itself is never carried: a function is made from the code of the same key that this process has
loaded. So nothing that came over a network is executed.
"""

import collections
import functools
import sys
import types
from typing import TYPE_CHECKING, Any

from trainmover.graph.kinds.kind import HOLE, MISSING, Body, Kind, Refs, same_objects
from trainmover.graph.nodes import Path, node_number
from trainmover.graph.script import CodeKey, code_key, code_of_library
from trainmover.torch_internals.objects import MADE_ATTRIBUTES

if TYPE_CHECKING:
    from trainmover.graph.restore import Restore
    from trainmover.graph.walk import Walk

_OF_CLASSES = (
    frozenset(
        {
            "__dict__",
            "__weakref__",
            "__doc__",
            "__module__",
            "__slots__",
            "__annotations__",
            "__hash__",
        }
        | {"_abc_impl", "__qualname__", "__abstractmethods__", "__parameters__", "__orig_bases__"}
        | {"__match_args__", "__firstlineno__", "__static_attributes__", "__dataclass_params__"}
        | {"__dataclass_fields__", "__annotate_func__", "__annotations_cache__"}
    )
    | MADE_ATTRIBUTES
)
"""Names in a class that Python, dataclasses, abc or torch put there as they make it."""
_Named = collections.namedtuple("_Named", "field")
_IN_C = (types.MemberDescriptorType, types.GetSetDescriptorType, type(_Named.field))


class Function(Kind):
    """A function: its code by key, cells, defaults and attributes."""

    name = "function"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        code = obj.__code__
        cells = zip(obj.__closure__ or (), code.co_freevars, strict=True)
        return (
            tuple(code_key(code)),
            obj.__globals__.get("__name__"),
            obj.__name__,
            [walk.ref(cell, path, f".<cell {name}>") for cell, name in cells],
            walk.ref(obj.__defaults__, path, ".__defaults__"),
            walk.ref(obj.__kwdefaults__, path, ".__kwdefaults__"),
            walk.ref(obj.__dict__, path, ".__dict__"),
        )

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        key, module, name, cells, defaults, keywords, attributes = body
        wanted = CodeKey(*key)
        if not _fits(live, wanted, cells, ref, restore):
            live = _made(live, wanted, module, name, cells, restore)
            if live is HOLE:
                return HOLE
        restore.take(ref, live)
        for one, cell in zip(cells, live.__closure__ or (), strict=True):
            restore.get(one, cell)
        restore.attribute(live, "__defaults__", defaults)
        restore.attribute(live, "__kwdefaults__", keywords)
        restore.get(attributes, live.__dict__)
        return live


def _fits(live: Any, key: CodeKey, cells: Refs, ref: int, restore: "Restore") -> bool:
    """Tell whether the live function can stand for the node, cells included."""
    if type(live) is not types.FunctionType or code_key(live.__code__) != key:
        return False
    closure = live.__closure__ or ()
    return (
        restore.is_free(live, ref)
        and len(closure) == len(cells)
        and all(
            restore.known(one, cell) is cell and restore.is_free(cell, one)
            for one, cell in zip(map(node_number, cells), closure, strict=True)
        )
    )


def _made(
    live: Any, key: CodeKey, module: str | None, name: str, cells: Refs, restore: "Restore"
) -> Any:
    """Return a new function; HOLE if this process has no such code."""
    names: Any = getattr(sys.modules.get(module or ""), "__dict__", None)
    if module in restore.script.modules():
        code, names = restore.code(key), restore.script.modules()[module]
    elif type(live) is types.FunctionType and code_key(live.__code__) == key:
        code, names = live.__code__, live.__globals__
    else:
        code = code_of_library(module or "", key)
    if code is None or names is None or len(code.co_freevars) != len(cells):
        return HOLE
    numbers = [*map(node_number, cells)]
    closure = tuple(
        restore.known(one) if restore.knows(one) else types.CellType() for one in numbers
    )
    for one, cell in zip(numbers, closure, strict=True):
        if not isinstance(cell, types.CellType):
            return HOLE
        restore.expect(one, cell)
    return types.FunctionType(code, names, name, None, closure or None)


class Cell(Kind):
    """A variable that functions share."""

    name = "cell"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        try:
            content = obj.cell_contents
        except ValueError:
            return (None,)
        return (walk.ref(content, path, ""),)

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        (content,) = body
        if not isinstance(live, types.CellType) or not restore.is_free(live, ref):
            live = types.CellType()
        restore.take(ref, live)
        try:
            old = live.cell_contents
        except ValueError:
            old = MISSING
        if content is None:
            if old is not MISSING:
                del live.cell_contents
            return live
        new = restore.get(content, old)
        if new is not old and new is not HOLE:
            live.cell_contents = new
        return live


class Partial(Kind):
    """A `functools.partial`."""

    name = "partial"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        parts = (obj.func, obj.args, obj.keywords)
        return [walk.ref(one, path, "()") for one in parts], walk.ref(vars(obj), path, ".__dict__")

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        parts, attributes = body
        known = type(live) is functools.partial and restore.is_free(live, ref)
        old = [live.func, live.args, live.keywords] if known else [MISSING] * 3
        new = [restore.get(one, was) for one, was in zip(parts, old, strict=True)]
        if any(one is HOLE for one in new):
            return live if known else HOLE
        if not known:
            live = functools.partial(new[0])
        restore.take(ref, live)
        if not same_objects(old, new):
            live.__setstate__((*new, vars(live)))
        restore.get(attributes, vars(live))
        return live


class Class(Kind):
    """A class of the script: its attributes."""

    name = "class"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        names = _attributes(obj).items()
        return (
            obj.__module__,
            obj.__qualname__,
            {name: walk.ref(value, path, f".{name}") for name, value in names},
        )

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        module, qualname, attributes = body
        cls = live
        if not (
            isinstance(live, type)
            and (live.__module__, live.__qualname__) == (module, qualname)
            and restore.is_free(live, ref)
        ):
            cls = restore.class_named(module, qualname)
        if cls is None:
            return HOLE
        restore.take(ref, cls)
        old = _attributes(cls)
        for name, one in attributes.items():
            new = restore.get(one, old.get(name, MISSING))
            if new is not HOLE and new is not old.get(name, MISSING):
                type.__setattr__(cls, name, new)
        for name in old.keys() - attributes.keys():
            type.__delattr__(cls, name)
        return cls


def _attributes(cls: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(cls).items()
        if name not in _OF_CLASSES and not isinstance(value, _IN_C)
    }


class Module(Kind):
    """A module of the script; its names are roots of the graph."""

    name = "module"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        return (obj.__name__,)

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        (name,) = body
        module = sys.modules.get(name)
        return HOLE if module is None else restore.take(ref, module)


class Code(Kind):
    """A code object that the script has as a value; it stays the process's own.

    What was compiled from a text no other process has.
    """

    name = "code"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        if not walk.script.owns_code(obj):
            walk.is_opaque(obj, path)
        return (tuple(code_key(obj)),)

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        (key,) = body
        wanted = CodeKey(*key)
        if isinstance(live, types.CodeType) and code_key(live) == wanted:
            return restore.take(ref, live)
        code = restore.code(wanted)
        return HOLE if code is None else restore.take(ref, code)
