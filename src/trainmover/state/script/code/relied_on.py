# SPDX-License-Identifier: Apache-2.0
"""What code reads: attributes of its objects, and what is around a function.

A script may set one and never read it: a rate of dropout, a momentum of a norm, the smoothing of a
loss. What it sets so is not worth nothing between two steps: the layer relies on it.
"""

import dis
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy
from torch import nn

from trainmover.installed import is_installed
from trainmover.state.class_caches import cached_by_class
from trainmover.state.script.code.grammar import CONSTRUCTORS, is_special
from trainmover.state.script.code.read_by_name import OTHERS, Reads, reads_any
from trainmover.state.script.things.libraries import is_of_library, module_of

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


@cached_by_class
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
    function: Any,
    varies: Callable[[str, object], bool],
    known_by: Mapping[str, Reads],
    owner: type | None = None,
) -> bool:
    """Whether what it returns follows from more than what it is given: from what may be another
    later, which it reads itself or by functions, methods and classes that it uses by name, of
    whatever object; from random numbers; from how many steps the job has made.

    varies: whether what is read by that name may be, with what it is now, or NOT_AROUND
    known_by: what the script's functions read, by their names
    owner: class of the object that it is a method of
    """

    def is_more(name: str, is_around: bool) -> bool:
        return name in _DRAW or name == "steps" or varies(name, [] if is_around else NOT_AROUND)

    methods = {} if owner is None else _methods_of(owner)
    known, waiting = set[int](), [function]
    for one in waiting:
        while (inner := getattr(one, "__wrapped__", None)) is not None:
            one = inner
        if isinstance(one, type):
            is_others = module_of(one).partition(".")[0] in OTHERS
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
        waiting += chain(*(_called_as(around[name]) for name in names & around.keys()))
        if reads_any(_asked_of_objects(one.__code__, around), known_by, is_more):
            return True
    return False


def _called_as(value: object) -> list[FunctionType]:
    """What an object has for being called, or for operators."""
    kind = type(value)
    if module_of(kind).partition(".")[0] in OTHERS or is_of_library(kind):
        return []
    special = (found for name, found in _methods_of(kind).items() if is_special(name))
    return [one for found in special for one in found if one.__name__ not in CONSTRUCTORS]


def _asked_of_objects(code: CodeType, around: dict[str, object]) -> set[str]:
    """Attributes that it reads, but for functions of others' modules: `math.cos`."""
    found, is_module = set[str](), False
    for step in dis.get_instructions(code):
        if step.opname in _READS and not is_module:
            found.add(step.argval)
        if step.opname not in _READS:
            is_module = _is_of_others(around.get(step.argval)) if _names(step) else False
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return found.union(*(_asked_of_objects(one, around) for one in inner))


def _names(step: dis.Instruction) -> bool:
    return step.opname.startswith(("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME"))


def _is_of_others(value: object) -> bool:
    if not isinstance(value, ModuleType):
        return False
    return value.__name__.partition(".")[0] in OTHERS or is_installed(
        getattr(value, "__file__", None) or ""
    )


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
