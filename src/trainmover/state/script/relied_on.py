"""Attributes that the code of a class reads of its objects.

A script may set one and never read it: a rate of dropout, a momentum of a norm, the smoothing of a
loss. What it sets so is not worth nothing between two steps: the layer relies on it.
"""

import dis
import functools
from collections.abc import Iterator
from types import CodeType, FunctionType

_READS = ("LOAD_ATTR", "LOAD_METHOD")
_LOADS = ("LOAD_FAST", "LOAD_DEREF")


@functools.cache
def relied_on(kind: type) -> frozenset[str]:
    """By name, of one class alone; what is written in C tells nothing."""
    codes = [code for value in vars(kind).values() for code in _codes_of(value)]
    named = [(code, code.co_varnames[0]) for code in codes if code.co_argcount]
    return frozenset(name for code, self in named for name in _read_of(self, code))


def _codes_of(value: object) -> Iterator[CodeType]:
    if isinstance(value, staticmethod):
        return
    function = getattr(value, "__func__", value)
    parts = (value.fget, value.fset) if isinstance(value, property) else (function,)
    for part in parts:
        if isinstance(part, FunctionType):
            yield part.__code__


def _read_of(self: str, code: CodeType) -> Iterator[str]:
    """Also in what is defined inside, which knows the object as a cell of that name."""
    is_it = False
    for step in dis.get_instructions(code):
        if is_it and step.opname in _READS:
            yield step.argval
        is_it = step.opname.startswith(_LOADS) and _last(step.argval) == self
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and self in inner.co_freevars:
            yield from _read_of(self, inner)


def _last(loaded: str | tuple[str, ...]) -> str:
    """From 3.13 on one step may load two."""
    return loaded if isinstance(loaded, str) else loaded[-1]
