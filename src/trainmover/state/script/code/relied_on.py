"""What code reads: attributes of its objects, and what is around a function.

A script may set one and never read it: a rate of dropout, a momentum of a norm, the smoothing of a
loss. What it sets so is not worth nothing between two steps: the layer relies on it.
"""

import dis
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy
from torch import nn

from trainmover.state.script.things.libraries import module_of

_READS = ("LOAD_ATTR", "LOAD_METHOD")
_LOADS = ("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD_FAST")
_PLAINLY_DRAW = (
    "random rand randn randint randperm rand_like randn_like randint_like normal bernoulli "
    "multinomial poisson uniform choice choices sample shuffle permutation permuted integers "
    "standard_normal getrandbits randrange randbytes triangular gauss normalvariate betavariate "
    "expovariate lognormvariate gammavariate beta gamma exponential binomial laplace lognormal"
)
_NO_DRAW = frozenset({"bit_generator", "spawn", "power", "f", "bytes"})
"""Methods of generators that draw nothing, or whose names are those of much else."""
_DRAW = {*_PLAINLY_DRAW.split()}
_DRAW |= {f"{name}_" for name in _DRAW} | {"rsample", "random_sample", "log_normal_", "geometric_"}
_DRAW |= {name for name in vars(numpy.random.Generator) if not name.startswith("_")} - _NO_DRAW
_DRAW |= {name for name in vars(nn.init) if name.endswith("_") and not name.startswith("_")}
_DRAW |= {name for name in vars(nn.functional) if "dropout" in name}
_DRAW |= {
    name
    for name, kind in vars(nn).items()
    if isinstance(kind, type) and (hasattr(kind, "reset_parameters") or "Dropout" in name)
}
"""Names of functions and methods that draw random numbers, of Python, numpy and torch; and of
layers that are made with some."""
_OTHERS = sys.stdlib_module_names | {"torch", "numpy"}
NOT_AROUND = object()


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
    bound = [value for value in vars(kind).values() if not isinstance(value, staticmethod)]
    codes = [function.__code__ for value in bound for function in _functions_in(value)]
    named = [(code, code.co_varnames[0]) for code in codes if code.co_argcount]
    return any(_reads_of(self, code, name) for code, self in named)


def _functions_in(value: object) -> Iterator[FunctionType]:
    """Of what a class has by some name: a method, however it is bound, or those of a property."""
    if isinstance(value, property):
        parts: tuple[object, ...] = (value.fget, value.fset)
    elif isinstance(value, functools.cached_property):
        parts = (value.func,)
    else:
        parts = (getattr(value, "__func__", value),)
    yield from (part for part in parts if isinstance(part, FunctionType))


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


def relies_on_more(
    function: Any, varies: Callable[[str, object], bool], owner: type | None = None
) -> bool:
    """Whether what it returns follows from more than what it is given: from what may be another
    later, which it reads itself or by functions, methods and classes that it uses by name; from
    random numbers; from how many steps the job has made.

    varies: whether what is read by that name may be, with what it is now, or NOT_AROUND
    owner: class of the object that it is a method of
    """
    methods = {} if owner is None else _methods_of(owner)
    known, waiting = set[int](), [function]
    for one in waiting:
        while (inner := getattr(one, "__wrapped__", None)) is not None:
            one = inner
        if isinstance(one, type):
            is_others = module_of(one).partition(".")[0] in _OTHERS
            waiting += [] if is_others else chain(*_methods_of(one).values())
        if type(one) is not FunctionType or id(one) in known:
            continue
        known.add(id(one))
        around, names = _around(one), _names_in(one.__code__)
        if not names.isdisjoint(_DRAW) or "steps" in names:
            return True
        if any(varies(name, around.get(name, NOT_AROUND)) for name in names):
            return True
        waiting += [around[name] for name in names & around.keys()]
        waiting += chain(*(methods[name] for name in names & methods.keys()))
    return False


def _methods_of(kind: type) -> dict[str, list[FunctionType]]:
    """By name, with those of its bases that `super()` may call."""
    found: dict[str, list[FunctionType]] = {}
    for base in kind.__mro__:
        for name, value in vars(base).items():
            found.setdefault(name, []).extend(_functions_in(value))
    return found


def _around(function: FunctionType) -> dict[str, object]:
    """Globals, and what it closes over."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {**function.__globals__, **{name: _content_of(cell) for name, cell in cells}}


def _content_of(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names_in(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return {*code.co_names, *code.co_freevars}.union(*map(_names_in, inner))
