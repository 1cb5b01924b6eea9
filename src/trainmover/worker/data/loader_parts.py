# SPDX-License-Identifier: Apache-2.0
"""What a loader is put together from: samplers, generators, the numbers that samplers count in."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from trainmover.errors import StateMismatch
from trainmover.state.held import closed_over
from trainmover.state.kinds.generators import Generator, is_generator, set_state, state_of
from trainmover.worker.data.trail import Trail

_DEPTH = 4
"""Of attributes that are looked into: a subset, its dataset, its transforms, one of them."""
_OBJECTS_MAX = 2000
_CONTAINER_MAX = 64
"""Entries. What is longer holds samples, not what they are made with."""
_OPAQUE = (Tensor, numpy.ndarray, nn.Module, type, ModuleType, str, bytes, int, float, CodeType)
NUMBERS = (bool, int, float)
OF_TORCH = frozenset(vars(DataLoader(TensorDataset(torch.zeros(1)))))
"""Attributes that every DataLoader has."""


def parts(loader: Any) -> list[tuple[str, Any]]:
    """Loader, sampler and batch sampler by name: what may hold a generator or an epoch."""
    sampler, batch_sampler = _inner(loader, "sampler"), _inner(loader, "batch_sampler")
    found = {
        "loader": loader,
        "sampler": sampler,
        "batch_sampler": batch_sampler,
        "batch_sampler.sampler": _inner(batch_sampler, "sampler"),
    }
    return [(name, part) for name, part in found.items() if part is not None]


def _inner(owner: Any, name: str) -> Any:
    part = getattr(owner, name, None)
    return part.inner if isinstance(part, Trail) else part


def keeps_own(loader: Any) -> bool:
    """Whether it is a DataLoader of another class, that may have attributes of its own: a script's,
    that counts the batches it has given."""
    is_other = isinstance(loader, DataLoader) and type(loader) is not DataLoader
    return is_other and not hasattr(loader, "state_dict")


# --- generators -----------------------------------------------------------------------------------


def all_generators(loader: Any) -> dict[str, Generator]:
    """Of samplers and of what loads the data, by where they lie."""
    return generators_in([*_loading(loader), *_drawing(loader)])


def loading_generators(loader: Any) -> dict[str, Generator]:
    """Of what makes batches out of indices: dataset and collate function, with all they hold. Of a
    loader of the script's own, all."""
    return generators_in(_loading(loader))


def drawing_generators(loader: Any) -> dict[str, Generator]:
    """Return those of what draws the indices: a sampler may make its own as its first pass
    begins."""
    return generators_in(_drawing(loader))


def _loading(loader: Any) -> list[tuple[str, Any]]:
    if not isinstance(loader, DataLoader):
        return [("loader", loader)]
    return [("dataset", loader.dataset), ("collate_fn", loader.collate_fn)]


def _drawing(loader: Any) -> list[tuple[str, Any]]:
    if not isinstance(loader, DataLoader):
        return []
    return [("loader.generator", loader.generator), *parts(loader)[1:]]


def states_of(generators: Mapping[str, Generator]) -> dict[str, Any]:
    return {name: state_of(generator) for name, generator in generators.items()}


def set_states(
    generators: Mapping[str, Generator], states: Mapping[str, Any], later: Iterable[str] = ()
) -> None:
    """Raises StateMismatch if these are not the generators that the states are of.

    later  names of such as may be here already although they were made later there
    """
    if generators.keys() - set(later) != states.keys() - set(later):
        raise StateMismatch(
            f"The loader has generators at {sorted(generators)}, at the source {sorted(states)}.",
            means="Its batches would not be those of the source.",
            do="A script must build the same loader for a rank wherever it runs, with its "
            "generators.",
        )
    for name in generators.keys() & states.keys():
        set_state(generators[name], states[name])


def generators_in(roots: Iterable[tuple[str, Any]]) -> dict[str, Generator]:
    """Each by its shortest path."""
    return {path: value for path, value in _walk(roots) if is_generator(value)}


def _walk(roots: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Breadth first, so that each goes by its shortest path; each object once."""
    seen: dict[int, Any] = {}
    level = list(roots)
    for _ in range(_DEPTH + 1):
        below: list[tuple[str, Any]] = []
        for path, value in level:
            if id(value) in seen or len(seen) > _OBJECTS_MAX:
                continue
            seen[id(value)] = value  # Held, so that no other gets its number meanwhile.
            yield path, value
            if not is_generator(value) and not isinstance(value, _OPAQUE):
                below += _below(path, value)
        level = below


def _below(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What it holds, containers opened."""
    if isinstance(value, Mapping):
        if len(value) <= _CONTAINER_MAX:
            for key, entry in value.items():
                yield from _entry(f"{path}[{key!r}]", entry)
    elif isinstance(value, list | tuple):
        if len(value) <= _CONTAINER_MAX:
            for place, entry in enumerate(value):
                yield from _entry(f"{path}[{place}]", entry)
    elif isinstance(value, functools.partial):
        yield f"{path}.func", value.func
        yield from _below(path, value.args)
        yield from _below(path, value.keywords)
    elif isinstance(value, MethodType):
        yield f"{path}.self", value.__self__
    elif isinstance(value, FunctionType):
        yield from _of_function(path, value)
    else:
        for name, entry in getattr(value, "__dict__", {}).items():
            yield from _entry(f"{path}.{name}", entry)
        for name, entry in _of_class(type(value)):
            if isinstance(entry, FunctionType):
                yield from _of_function(f"{path}.{name}", entry)
            elif is_generator(entry):
                yield f"{path}.{name}", entry


def _entry(path: str, entry: Any) -> Iterator[tuple[str, Any]]:
    """A container counts as no level of its own."""
    if isinstance(entry, list | tuple | Mapping):
        yield from _below(path, entry)
    else:
        yield path, entry


def _of_function(path: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What it closes over, and generators that it knows by a global name."""
    yield from ((f"{path}.{name}", one) for name, one in closed_over(function).items())
    for name in _names(function.__code__):
        known = function.__globals__.get(name)
        if is_generator(known):
            yield f"global {name}", known


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _of_class(kind: type) -> Iterator[tuple[str, Any]]:
    """What its classes have, but for torch's and numpy's: those know no generators of others."""
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in ("torch", "builtins", "typing", "numpy"):
            yield from vars(base).items()


# --- numbers --------------------------------------------------------------------------------------


def counting(loader: Any) -> list[Any]:
    """Those of its parts whose numbers are told by `numbers_of`."""
    return [part for _, part in _counting(loader)]


def numbers_of(loader: Any) -> dict[str, dict[str, Any]]:
    """What samplers, and a loader of the script's own, count in: an epoch, a seed, passes so far.

    By part, and in it by name; of what a sampler wraps too.
    """
    return {path: _numbers_in(part) for path, part in _counting(loader)}


def set_numbers(loader: Any, numbers: Mapping[str, Mapping[str, Any]]) -> None:
    """Put them back, where the parts are here. One that was still its class's is so again."""
    for path, part in _counting(loader):
        given = numbers.get(path, {})
        for name in _numbers_in(part).keys() - given.keys():
            if hasattr(type(part), name):
                del vars(part)[name]
        vars(part).update(given)


def _numbers_in(part: Any) -> dict[str, Any]:
    skip = OF_TORCH if isinstance(part, DataLoader) else ()
    held = vars(part).items()
    return {name: value for name, value in held if _is_number(value) and name not in skip}


def _is_number(value: object) -> bool:
    return type(value) in NUMBERS or isinstance(value, numpy.number)


def _counting(loader: Any) -> Iterator[tuple[str, Any]]:
    for path, part in parts(loader):
        if not hasattr(part, "__dict__") or (isinstance(part, DataLoader) and not keeps_own(part)):
            continue
        yield path, part
        if path != "loader":
            for name, inner in vars(part).items():
                if _is_sampler(inner):
                    yield f"{path}.{name}", inner


def _is_sampler(value: Any) -> bool:
    return (
        hasattr(value, "__dict__")
        and hasattr(value, "__iter__")
        and not isinstance(value, (*_OPAQUE, Dataset, Trail, torch.Generator))
    )
