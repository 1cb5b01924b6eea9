# SPDX-License-Identifier: Apache-2.0
"""What is told by its name: functions and methods that are written in C, numpy's and torch's
operators, and what calls or takes something by a name.
"""

import functools
import operator
import re
import types
from collections.abc import Callable
from typing import Any

import numpy
import torch

from trainmover.state.script.things.libraries import module_of

Inside = Callable[[object], Any]
"""Folds what a thing holds."""
_OPERATORS = (type(torch.ops.aten.relu), type(torch.ops.aten.relu.default))
_DESCRIPTORS = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType),
)
_TAKE = (operator.itemgetter, operator.attrgetter, operator.methodcaller)


def of_function(value: Any, inside: Inside) -> Any:
    return [str(getattr(value, name, "")) for name in ("__module__", "__qualname__", "__name__")]


def _of_descriptor(value: Any, inside: Inside) -> Any:
    owner = value.__objclass__
    return [module_of(owner), owner.__qualname__, value.__name__]


def _of_operator(value: Any, inside: Inside) -> Any:
    return str(value)


def _taken(value: Any, inside: Inside) -> Any:
    made, arguments = value.__reduce__()
    named: dict[str, Any] = {}
    if isinstance(made, functools.partial):
        arguments, named = made.args, made.keywords
    return inside([list(arguments), named])


def _compiled(value: "torch.jit.ScriptFunction[Any, Any]", inside: Inside) -> Any:
    return [value.qualified_name, value.code]


def _kind_of_elements(value: "numpy.dtype[Any]", inside: Inside) -> Any:
    return repr(value)


def _pattern(value: "re.Pattern[Any]", inside: Inside) -> Any:
    return [inside(value.pattern), value.flags]


READERS: dict[type, Callable[[Any, Inside], Any]] = {
    **dict.fromkeys((type(numpy.mean), numpy.ufunc), of_function),
    **dict.fromkeys(_DESCRIPTORS, _of_descriptor),
    **dict.fromkeys(_OPERATORS, _of_operator),
    **dict.fromkeys(_TAKE, _taken),
    torch.jit.ScriptFunction: _compiled,
    numpy.dtype: _kind_of_elements,
    re.Pattern: _pattern,
}
KINDS = (*READERS,)


def in_words(value: Any) -> str:
    """For people, of one of these kinds."""
    if isinstance(value, torch.jit.ScriptFunction):
        return f"the function {value.qualified_name}"
    if isinstance(value, type(numpy.mean) | numpy.ufunc):
        return f"the function {value.__name__}"
    return str(value) if isinstance(value, _OPERATORS) else repr(value)


def reader_of(kind: type) -> Callable[[Any, Inside], Any] | None:
    """Of functions of further kinds, as compilers of Python make them."""
    names = {name for one in kind.__mro__ for name in vars(one)}
    return of_function if {"__call__", "__name__", "__code__"} <= names else None
