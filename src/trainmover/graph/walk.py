# SPDX-License-Identifier: Apache-2.0
"""Capture of a graph: everything that is reached from the script's frames and modules.

This walk in Python is the reference. It visits each object once and runs none of the script's code.
"""

import enum
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from trainmover.asked import known_refs
from trainmover.graph import frames as stack
from trainmover.graph.blocks import BlockReader, BlockView, Span
from trainmover.graph.kinds import KINDS, kind_for
from trainmover.graph.loose import loose_objects
from trainmover.graph.machine import facts
from trainmover.graph.nodes import (
    PLAIN,
    Graph,
    Node,
    Opaque,
    Path,
    Ref,
    Roots,
    node_number,
    node_ref,
    path_text,
    type_name,
)
from trainmover.graph.script import Script, is_importable, is_own_name, loops_last

_IN_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
ADDRESS_MIN = 1 << 32
"""Smaller integers are no addresses of objects on 64-bit hosts."""
_SINGLETONS = {id(Ellipsis): "Ellipsis", id(NotImplemented): "NotImplemented"}


class Walk:
    """One capture.

    nodes     what was found; `objects` by node
    opaque    what cannot be carried
    edges     nodes that were referred to, each time
    integers  values that may be the address of an object
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.nodes: list[Node] = []
        self.objects: dict[int, Any] = {}
        self.opaque: list[Opaque] = []
        self.edges: list[int] = []
        self.integers: list[int] = []
        self._blocks = BlockReader(self.nodes, self.objects)
        self._numbers: dict[int, int] = {}
        self._classes: dict[int, tuple[type, Ref]] = {}
        self._pending: list[tuple[int, object, Path]] = []

    def ref(self, obj: Any, owner: Path, label: str) -> Ref:
        """Return the reference to an object that its owner has under a label."""
        kind = type(obj)
        if kind in PLAIN:
            if kind is int and obj > ADDRESS_MIN:
                self.integers.append(obj)
            return (obj,)
        number = self._numbers.get(id(obj))
        if number is None:
            named = self._named(obj, kind)
            if named is not None:
                return named
            number = self.enter(obj)
            self._pending.append((number, obj, (owner, label)))
        self.edges.append(number)
        return node_ref(number)

    def refs(self, values: list[Any], owner: Path, label: Callable[[int], str]) -> list[Ref]:
        """Return the references to objects that their owner has. label: of one, by position"""
        numbers, edges, integers = self._numbers, self.edges, self.integers
        found = known_refs(values, numbers, PLAIN, edges, integers, ADDRESS_MIN)
        if None in found:
            for position, one in enumerate(found):
                if one is None:
                    found[position] = self.ref(values[position], owner, label(position))
        return found

    def named_refs(self, values: dict[str, Any], owner: Path) -> dict[str, Ref]:
        """Return the references to objects that their owner has under names."""
        names = [*values]
        if not names:
            return {}
        found = self.refs([*values.values()], owner, lambda n: f".{names[n]}")
        return dict(zip(names, found, strict=True))

    def class_ref(self, cls: Any, owner: Path) -> Ref:
        """Return the reference to the class of an object."""
        known = self._classes.get(id(cls))
        if known is not None and known[1] == (cls.__module__, cls.__qualname__):
            return known[1]
        ref = self.ref(cls, owner, ".<type>")
        if node_number(ref) < 0:
            self._classes[id(cls)] = cls, ref
        return ref

    def forget_classes(self) -> None:
        """Ask again which classes are the script's: it has other modules."""
        self._classes.clear()

    def enter(self, obj: Any) -> int:
        """Return the number of a new node, which is read later."""
        number = self._numbers[id(obj)] = len(self.nodes)
        self.nodes.append(())
        self.objects[number] = obj
        return number

    def block(self, span: Span, address: int) -> BlockView | None:
        """Return the view of an address in a range of memory, which becomes a node."""
        view = self._blocks.view(span, address)
        if view is not None:
            self.edges.append(node_number(view[0]))
        return view

    def gradient(self, tensor: Any, path: Path) -> Ref | None:
        """Return the reference to a tensor's gradient; None if it has none."""
        return None if tensor.grad is None else self.ref(tensor.grad, path, ".grad")

    def is_opaque(self, obj: object, path: Path) -> None:
        """Note an object that cannot be carried."""
        self.opaque.append(Opaque(path_text(path), type_name(type(obj))))

    def keeps_graph(self, tensor: Any, path: Path) -> None:
        """Note a tensor whose value is carried, and whose autograd graph is not."""
        name = tensor.grad_fn.name() if tensor.grad_fn is not None else "no function"
        self.opaque.append(Opaque(path_text(path), f"autograd graph ({name})"))

    def finish(self) -> None:
        """Visit all objects that were referred to, and theirs."""
        while self._pending:
            self.read(*self._pending.pop())

    def read(self, number: int, obj: Any, path: Path) -> None:
        """Read the body of an object's node."""
        kind = KINDS["data"] if self.is_data(obj) else kind_for(obj)
        self.nodes[number] = (kind.name, *kind.read(obj, self, path))

    def is_data(self, obj: object) -> bool:
        """Tell whether an object is data, which is not carried. A capture carries all."""
        return False

    def addresses(self) -> dict[int, int]:
        """Return integers that are the address of an object in the graph, with its node."""
        return {one: self._numbers[one] for one in {*self.integers} & self._numbers.keys()}

    def visited(self) -> set[int]:
        """Return the addresses of all objects that are nodes."""
        return {*self._numbers}

    def _named(self, obj: Any, kind: type) -> Ref | None:
        """Return the reference by name to an object of a library; None for the script's state."""
        if isinstance(obj, type):
            return None if self.script.owns_class(obj) else _name_of_class(obj)
        if isinstance(obj, types.ModuleType):
            return None if self.script.owns_module(obj) else (obj.__name__, "")
        if kind is types.FunctionType:
            own = obj.__closure__ is not None or self.script.owns_code(obj.__code__)
            if not own and is_importable(obj, obj.__module__, obj.__qualname__):
                return obj.__module__, obj.__qualname__
        elif kind is types.BuiltinFunctionType:
            if obj.__self__ is None or isinstance(obj.__self__, types.ModuleType):
                return _name_of_builtin(obj)
        elif kind in _IN_C:
            return obj.__objclass__.__module__, obj.__qualname__
        elif kind is numpy.ufunc:
            return "numpy", obj.__name__
        elif id(obj) in _SINGLETONS:
            return "builtins", _SINGLETONS[id(obj)]
        elif isinstance(obj, enum.Enum) and not self.script.owns_class(kind) and obj.name:
            return kind.__module__, f"{kind.__qualname__}.{obj.name}"
        elif kind.__module__ == "torch" and kind.__qualname__ in ("layout", "memory_format"):
            return "torch", str(obj).removeprefix("torch.")
        return None


def _name_of_builtin(function: types.BuiltinFunctionType) -> Ref:
    """Return module and name of a function in C: `torch.sum` calls itself
    `torch._VariableFunctionsClass.sum`, which there is not."""
    module = function.__module__ or "builtins"
    names = function.__qualname__, function.__name__
    return module, next((one for one in names if is_importable(function, module, one)), names[0])


def _name_of_class(cls: type) -> Ref:
    """Return module and name of a library's class; iterators of Python have no importable name."""
    if cls.__module__ == "builtins" and not is_importable(cls, "builtins", cls.__qualname__):
        return "<builtin>", cls.__qualname__
    return cls.__module__, cls.__qualname__


def capture(
    frames: list[types.FrameType],
    script: Script,
    process: Mapping[str, object] | None = None,
    active: Sequence[object] = (),
    *,
    with_loose: bool = False,
) -> Graph:
    """Return the graph of a script that stands at these frames.

    process  more roots by name: settings, random generators, a step's arguments
    active   objects that are at work between these frames, beside running generators
    with_loose  search for objects, too, that no Python object leads to
    """
    walk, roots = Walk(script), Roots()
    at_work = [*stack.running_generators(frames), *active]
    roots.active = [walk.ref(one, None, "<active>") for one in at_work]
    for name, value in (process or {}).items():
        roots.process[name] = walk.ref(value, None, f"<{name}>")
    for module, names in script.modules().items():
        owner = (None, module)
        own = loops_last({name: one for name, one in list(names.items()) if is_own_name(name)})
        roots.modules[module] = {
            name: walk.ref(value, owner, f".{name}") for name, value in own.items()
        }
    for frame in frames:
        owner = (None, f"{frame.f_code.co_qualname}()")
        values = loops_last(stack.locals_of(frame)).items()
        roots.frames.append({name: walk.ref(one, owner, f".{name}") for name, one in values})
    walk.finish()
    if with_loose:
        for key, found in loose_objects(script, walk.visited()).items():
            roots.loose[key] = [walk.ref(one, None, "<loose>") for one in found]
        walk.finish()
    place = stack.place_of(frames)
    return Graph(place, roots, walk.nodes, walk.addresses(), walk.opaque, facts(), walk.objects)
