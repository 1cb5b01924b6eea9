# SPDX-License-Identifier: Apache-2.0
"""Objects of Python's library and of others that are values: what is equal has equal parts.

    values      of a class that compares them by what they are, and has a place for each part and
                none for anything else: a distribution of `statistics`, a number of sympy's
    attributes  of packages of numbers: a polynomial, a template, a transform

What holds the time, a file, a socket or a thread is neither: it has its type alone.
"""

import weakref
from pickle import PickleError
from types import FunctionType, NoneType
from typing import Any

import numpy
from torch.distributions import Distribution

from trainmover.state.class_caches import cached_by_class
from trainmover.state.script.things.held import CANNOT_BE_READ, computed_in, has_attributes, held_by
from trainmover.state.script.things.libraries import is_of_library, module_of, only_shows
from trainmover.torch_internals.distributions import REMEMBERED, leads_back

_OF_NUMBERS = ("numpy", "scipy", "string", "statistics", "torch.distributions")
"""Packages whose objects are told by their attributes."""
_OF_VALUES = ("statistics", "datetime", "zoneinfo", "string", "fractions", "decimal", "collections")
"""Of Python's library, those that have values, beside all others' packages."""
_OF_THE_MACHINE = ("numpy.lib", "numpy.random", "numpy.testing", "numpy.f2py", "scipy.io")
_HANDLES = frozenset({"__fspath__", "fileno", "close", "__enter__", "__next__", "__call__"})
_UNSURE = REMEMBERED | {"_ufunc", "_has_sorted_indices", "_has_canonical_format"}
"""Attributes that objects get as they are first asked for something."""
_ALTERNATIVES = ("probs", "logits")
_RAISED = (*CANNOT_BE_READ, ArithmeticError, AssertionError, ImportError, SyntaxError, PickleError)
_REMEMBERS = ("hash", "cache")
"""In the name of one."""


@cached_by_class
def has_attributes_of_numbers(kind: type) -> bool:
    """Whether attributes tell all of such an object."""
    module = module_of(kind)
    return (
        _is_in(module, _OF_NUMBERS) and not _is_in(module, _OF_THE_MACHINE) and has_attributes(kind)
    )


@cached_by_class
def is_value(kind: type) -> bool:
    """Whether what makes it anew tells all of such an object."""
    if has_attributes(kind) or issubclass(kind, BaseException) or only_shows(kind):
        return False
    named = {name: one for base in kind.__mro__[-2::-1] for name, one in vars(base).items()}
    if "__eq__" not in named or named.keys() & _HANDLES:
        return False
    in_python = type(named["__eq__"]) is FunctionType  # Of others a copy may be all their memory.
    return _is_in(module_of(kind), _OF_VALUES) or (in_python and is_of_library(kind))


@cached_by_class
def is_image(kind: type) -> bool:
    """Whether it shows its memory as numpy wants it, as those of PIL do."""
    shows = any("__array_interface__" in vars(one) for one in kind.__mro__)
    return shows and not issubclass(kind, numpy.ndarray | numpy.generic) and is_of_library(kind)


def attributes_of(value: object) -> dict[str, Any]:
    """By name, in a fixed order; not those that it may have only since it was asked."""
    held, computed = held_by(value), computed_in(type(value))
    return {
        name: one
        for name, one in sorted(held.items(), key=_name)
        if not (name in computed or _is_remembered(name, one) or leads_back(value, name))
    }


def parameters_of(value: Distribution) -> dict[str, Any]:
    """What it is made with; of probabilities and their logarithms one is worked out when asked."""
    held, known = held_by(value), vars(type(value)).get("arg_constraints")
    names = [name for name in (known if isinstance(known, dict) else ()) if name in held]
    if not names:
        return attributes_of(value)
    given = next((name for name in held if name in _ALTERNATIVES), "")
    return {name: held[name] for name in names if name not in _ALTERNATIVES or name == given}


def parts_of(value: Any) -> list[Any]:
    """What it is made anew from; [] where it has nothing."""
    try:
        reduced = value.__reduce_ex__(4)
    except _RAISED:  # By a library's code: it tells no more than its type.
        return []
    if type(reduced) is not tuple:
        return []
    _, made_with, *more = reduced
    state, *entries = [*more, None, None, None][:3]
    if type(state) is tuple and len(state) == 2 and type(state[1]) is dict:
        state = [state[0], {k: v for k, v in state[1].items() if not _is_remembered(k, v)}]
    parts = [*made_with, state, *([*one] if one is not None else None for one in entries)]
    return parts if any(one is not None and one is not type(value) for one in parts) else []


def _is_remembered(name: object, value: object) -> bool:
    if type(name) is not str or name in _UNSURE or type(value) in (NoneType, weakref.ref):
        return True
    return any(word in name for word in _REMEMBERS)


def _is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in packages)


def _name(entry: tuple[Any, Any]) -> str:
    return str(entry[0])
