# SPDX-License-Identifier: Apache-2.0
"""Models and optimizers of a script, found where it keeps them.

The search begins at the variables of the script's frames and modules and goes through containers,
attributes and closures, breadth first, so a thing has the name of its shortest path: `model`,
`self.optimizer`, `trainer.models[0]`. It does not go through trainmover's own objects. The order is
that of the script, the same on every rank that runs the same lines.
"""

import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from trainmover.graph.layout import is_runtime
from trainmover.graph.script import is_own_name
from trainmover.loops.rewrite import PREFIX

OBJECTS_MAX = 100_000
_ITEMS_MAX = 1_000
"""Of a container; one with more is data."""
_LEAVES = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType)


def found(roots: Iterable[Mapping[str, Any]]) -> dict[str, nn.Module | Optimizer]:
    """Return all that can be reached, by path; modules that are a part of another are left out.

    roots  variables by name, the innermost frame's first
    """
    modules: dict[str, nn.Module] = {}
    optimizers: dict[str, nn.Module | Optimizer] = {}
    waiting = deque([one for names in roots for one in _variables(names)])
    seen: dict[int, Any] = {}
    while waiting and len(seen) < OBJECTS_MAX:
        path, obj = waiting.popleft()
        if isinstance(obj, _LEAVES) or id(obj) in seen or _is_ours(obj):
            continue
        seen[id(obj)] = obj
        if isinstance(obj, Optimizer):
            optimizers[path] = obj
            continue
        if isinstance(obj, nn.Module):
            modules[path] = obj
        waiting.extend(_inside(path, obj))
    parts = {id(part) for one in modules.values() for part in [*one.modules()][1:]}
    whole = {path: one for path, one in modules.items() if id(one) not in parts and _has_state(one)}
    return whole | optimizers


def _variables(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in names.items():
        if is_own_name(name) and not name.startswith(PREFIX):
            yield name, value


def _inside(path: str, obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, dict):
        if len(obj) <= _ITEMS_MAX:
            yield from ((f"{path}[{key!r}]", value) for key, value in [*obj.items()])
    elif isinstance(obj, list | tuple | set | frozenset | deque):
        if len(obj) <= _ITEMS_MAX:
            yield from ((f"{path}[{number}]", value) for number, value in enumerate([*obj]))
    elif isinstance(obj, types.FunctionType):
        names = obj.__code__.co_freevars
        for name, cell in zip(names, obj.__closure__ or (), strict=True):
            yield from ((f"{path}.{name}", value) for value in _content(cell))
    elif isinstance(obj, types.MethodType):
        yield f"{path}.__self__", obj.__self__
    elif not isinstance(obj, nn.Module):
        held = getattr(obj, "__dict__", None)
        if type(held) is dict and len(held) <= _ITEMS_MAX:
            yield from ((f"{path}.{name}", value) for name, value in [*held.items()])
    else:
        own = {name: value for name, value in vars(obj).items() if not name.startswith("_")}
        yield from ((f"{path}.{name}", value) for name, value in own.items())


def _is_ours(obj: Any) -> bool:
    """Whether it is trainmover's, or the process's: from there one comes to what runs of before
    have left."""
    module = getattr(obj, "__module__", None) or ""
    return is_runtime(type(obj)) or (type(module) is str and module.startswith("trainmover."))


def _content(cell: types.CellType) -> Iterator[Any]:
    try:
        yield cell.cell_contents
    except ValueError:  # It is empty.
        return


def _has_state(module: nn.Module) -> bool:
    """Whether there is anything to keep of it."""
    parameters, buffers = next(module.parameters(), None), next(module.buffers(), None)
    return parameters is not None or buffers is not None
