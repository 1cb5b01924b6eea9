# SPDX-License-Identifier: Apache-2.0
"""The make of what is tracked: which layers a module has, what hooks they, and what hooks all else.
What a script puts in or takes out while it trains no other machine has. Nor has it another order in
which parameters and buffers are gone through, nor other parameters under the names by which they
are put than those whose gradients are summed together."""

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from torch import nn
from torch.optim import Optimizer

from trainmover.asked import are, held_in
from trainmover.state.kinds.modules.modes import wrappers_of
from trainmover.torch_internals.distributed.ddp import summed_by
from trainmover.torch_internals.modules import (
    buffers_in,
    global_hooks,
    hooks_of,
    parameters_in,
    parts_of,
    tensors_of,
    unsaved_of,
)

_OURS = f"{__name__.partition('.')[0]}."


class Layers:
    """Stands for it where variables are read."""

    def __init__(self, module: nn.Module) -> None:
        self._module = weakref.ref(module)
        self._noted: Make | None = None

    def read(self, inside: Callable[[object], Any]) -> list[Any]:
        """Of each part, in a fixed order: where it stands, its class, the names of its tensors, and
        its hooks as `inside` gives them. And which parameters have changed places."""
        parts = [*_walk(self._module())]
        found = [self._part(path, part, inside) for path, part in parts]
        moved = _exchanged([part for _, part in parts])
        return [*found, moved] if moved else found

    @staticmethod
    def _part(path: str, part: nn.Module, inside: Callable[[object], Any]) -> list[Any]:
        kind, unsaved = type(part), unsaved_of(part)  # Those may come with the rank.
        tensors = [name for name in tensors_of(part) if name not in unsaved]
        hooked = [
            inside([*table.values()]) for _, table in sorted(_hooks_of(part).items()) if table
        ]
        return [path, f"{kind.__module__}.{kind.__qualname__}", tensors, hooked]

    def note(self) -> None:
        """`is_same` is about the make that it has now."""
        self._noted = self._made()

    def is_same(self) -> bool:
        """Whether it has the make that was noted."""
        if self._module() is None:
            self._noted = None
        return self._noted is not None and self._noted.is_same()

    def make(self) -> "Make":
        """That it has now."""
        noted = self._noted
        return noted if noted is not None and noted.is_same() else self._made()

    def _made(self) -> "Make":
        return Make([part for _, part in _walk(self._module())])


class Make:
    """The very parts and hooks that a module has, by their names; of its tensors the names, and
    which parameters they stand for where somebody goes by that."""

    def __init__(self, parts: list[nn.Module]) -> None:
        self._parts, self._kinds = parts, [*map(type, parts)]
        every = ((parts_of(one), *_hooks_of(one).values()) for one in parts)
        self._layers = [table for tables in every for table in tables]
        self._parameters = [one for part in parts if isinstance(one := parameters_in(part), dict)]
        buffers = [buffers_in(part) for part in parts]
        self._tensors: list[dict[str, Any]] = [
            *self._parameters,
            *(one for one in buffers if isinstance(one, dict)),
        ]
        self._names, self._moved = self._names_now(), _exchanged(parts)
        self._hold()

    def _hold(self) -> None:
        """What lies there now stands for it."""
        self._held = held_in([*self._layers, *self._tensors])
        self._held_layers = held_in(self._layers)
        self._held_parameters = held_in(self._parameters)

    def _names_now(self) -> list[tuple[str, ...]]:
        return [tuple(table) for table in self._tensors]

    def is_same(self) -> bool:
        """Whether it has them still."""
        if self._held.same():
            return are([*map(type, self._parts)], self._kinds)
        return self._is_alike() and are([*map(type, self._parts)], self._kinds)

    def _is_alike(self) -> bool:
        """With other tensors under the same names: a buffer may get a new one in every step, and
        FSDP2 has whole parameters in the place of its shards for a while."""
        if not self._held_layers.same() or self._names_now() != self._names:
            return False
        if not self._held_parameters.same() and _exchanged(self._parts) != self._moved:
            return False
        self._hold()
        return True


class Hooked:
    """Stands for hooks in no table of a module's: of its tensors, of optimizers, and those that are
    called for all of them. Ours are none."""

    def __init__(self, objects: Iterable[nn.Module | Optimizer]) -> None:
        self._objects = [weakref.ref(one) for one in objects]

    def read(self, inside: Callable[[object], Any]) -> list[Any]:
        """Where each is, and the hooks there as `inside` gives them, in a fixed order."""
        every = ((place, [*filter(_is_others, hooks)]) for place, hooks in self._places())
        return [[place, [inside(one) for one in hooks]] for place, hooks in every if hooks]

    def _places(self) -> Iterator[tuple[str, Collection[Any]]]:
        for name, table in sorted(global_hooks().items()):
            yield name, table.values()
        for number, one in enumerate(reference() for reference in self._objects):
            if isinstance(one, nn.Module):
                for path, part in _walk(one):
                    for name, tensor in tensors_of(part).items():
                        yield f"{number}.{path}.{name}", [] if tensor is None else hooks_of(tensor)
            elif one is not None:
                for name, table in sorted(_hooks_of(one).items()):
                    yield f"{number}.{name}", table.values()


def _walk(module: nn.Module | None) -> Iterator[tuple[str, nn.Module]]:
    """It and all modules in it, each with its path, whatever its own methods say."""
    left: list[tuple[str, nn.Module | None]] = [("", module)]
    while left:
        path, part = left.pop()
        if part is not None:
            yield path, part
            left += [(f"{path}.{name}", one) for name, one in parts_of(part).items()]


def _exchanged(parts: list[nn.Module]) -> list[list[int]]:
    """Of each wrapper that sums gradients, by number, the parameters that stand in its module now,
    if they are not those it was made with in their order: it goes by them and not by their names.
    -1: one that it has not. What is frozen does not count."""
    found = []
    own = {
        id(one): one for part in parts for one in parameters_in(part).values() if one is not None
    }
    for wrapper in wrappers_of([*own.values()]):
        summed = [id(one) for one in summed_by(wrapper) if one.requires_grad]
        now = [id(one) for one in wrapper.module.parameters() if one.requires_grad]
        if now != summed:
            numbers = {key: number for number, key in enumerate(summed)}
            found.append([numbers.get(key, -1) for key in now])
    return found


def _is_others(hook: object) -> bool:
    return not str(getattr(hook, "__module__", "")).startswith(_OURS)


def _hooks_of(part: nn.Module | Optimizer) -> dict[str, dict[Any, Any]]:
    """Tables of its own hooks, live."""
    held = vars(part).items()
    return {name: one for name, one in held if name.endswith("_hooks") and isinstance(one, dict)}
