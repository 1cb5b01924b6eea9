"""Attributes that the code of a class reads of its objects.

A script may set one and never read it: a rate of dropout, a momentum of a norm, the smoothing of a
loss. What it sets so is not worth nothing between two steps: the layer relies on it.
"""

import dis
import functools
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType

_READS = ("LOAD_ATTR", "LOAD_METHOD")
_LOADS = ("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD_FAST")


def relied_on(kinds: Iterable[type], names: set[str]) -> set[str]:
    """Those of the names that the code of one of the classes reads of its own object.

    What a class inherits is asked of each base; what is written in C tells nothing.
    """
    return {name for kind in kinds for name in names if _reads(kind, name)}


def worthless(temporary: set[str], kinds: Iterable[type]) -> set[str]:
    """Those of the names that are written before the script reads them, and that no code of the
    other classes of such an object relies on."""
    return temporary - relied_on(kinds, temporary)


@functools.cache
def _reads(kind: type, name: str) -> bool:
    codes = [code for value in vars(kind).values() for code in _codes_of(value)]
    named = [(code, code.co_varnames[0]) for code in codes if code.co_argcount]
    return any(_reads_of(self, code, name) for code, self in named)


def _codes_of(value: object) -> Iterator[CodeType]:
    if isinstance(value, staticmethod):
        return
    function = getattr(value, "__func__", value)
    parts = (value.fget, value.fset) if isinstance(value, property) else (function,)
    for part in parts:
        if isinstance(part, FunctionType):
            yield part.__code__


def _reads_of(self: str, code: CodeType, name: str) -> bool:
    """Also in what is defined inside, which knows the object as a cell of that name."""
    if name in code.co_names and _reads_here(self, code, name):
        return True
    inside = (inner for inner in code.co_consts if isinstance(inner, CodeType))
    return any(_reads_of(self, inner, name) for inner in inside if self in inner.co_freevars)


def _reads_here(self: str, code: CodeType, name: str) -> bool:
    is_it = False
    for step in dis.get_instructions(code):
        if is_it and step.opname in _READS and step.argval == name:
            return True
        is_it = step.opname.startswith(_LOADS) and _last(step.argval) == self
    return False


def _last(loaded: str | tuple[str, ...]) -> str:
    """From 3.13 on one step may load two."""
    return loaded if isinstance(loaded, str) else loaded[-1]
