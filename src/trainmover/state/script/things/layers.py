"""The make of what is tracked: which layers a module has, what hooks they, and what hooks all else.
What a script puts in or takes out while it trains no other machine has."""

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from torch import nn
from torch.optim import Optimizer

from trainmover.asked import are, held_in
from trainmover.torch_internals.modules import (
    global_hooks,
    hooks_of,
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
        its hooks as `inside` gives them."""
        return [self._part(path, part, inside) for path, part in _walk(self._module())]

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
    """The very parts and hooks that a module has, by their names. Tensors are looked after by who
    keeps the state."""

    def __init__(self, parts: list[nn.Module]) -> None:
        self._parts, self._kinds = parts, [*map(type, parts)]
        tables = [table for one in parts for table in (parts_of(one), *_hooks_of(one).values())]
        self._tables = held_in(tables)

    def is_same(self) -> bool:
        """Whether it has them still."""
        return self._tables.same() and are([*map(type, self._parts)], self._kinds)


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


def _is_others(hook: object) -> bool:
    return not str(getattr(hook, "__module__", "")).startswith(_OURS)


def _hooks_of(part: nn.Module | Optimizer) -> dict[str, dict[Any, Any]]:
    """Tables of its own hooks, live."""
    held = vars(part).items()
    return {name: one for name, one in held if name.endswith("_hooks") and isinstance(one, dict)}
