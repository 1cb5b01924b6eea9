# SPDX-License-Identifier: Apache-2.0
"""What the ends of the `with`s around will read that no variable holds.

A manager may lie on the frame's stack alone. `__exit__` of one of the script's own classes reads
attributes of it; one made of a generator goes on with that, and its locals; an ExitStack calls what
was pushed. Managers of libraries are not looked into.
"""

import contextlib
import dis
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import (
    AsyncGeneratorType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
)
from typing import Any

from trainmover.installed import is_installed
from trainmover.state.class_caches import cached_by_class
from trainmover.state.script.code.source import scope_of
from trainmover.state.script.place.stacked import can_be_read, owner_at
from trainmover.state.script.place.withs import EXITS, STACKS
from trainmover.state.script.things.held import all_held_by, closed_over, held_by
from trainmover.state.script.things.libraries import module_of

_ENTERS = ("__enter__", "__aenter__")
_BY_NAME = frozenset({"getattr", "vars", "__dict__", "attrgetter", "asdict"})
_CALLS_OF_STACK = "_exit_callbacks"
_NESTED_MAX = 4


@dataclass(frozen=True)
class Around:
    """One `with` around, as a frame of its code has it.

    level        where on the stack its `__exit__` lies
    is_expected  what its expression gives is the script's own, or an ExitStack
    is_own       whether a class is of the script's own code
    is_own_file  whether a file is
    leaves_out   those of some attributes of an object of such a class that do not count
    """

    level: int
    is_expected: bool
    is_own: Callable[[type], bool]
    is_own_file: Callable[[str], bool]
    leaves_out: Callable[[Any, set[str]], Collection[str]]

    def __call__(self, frame: FrameType) -> Any:
        """As something that can be compared; None: there is nothing of the script's own."""
        known = owner_at(frame, self.level)
        if known is None:
            return _not_read(os.getpid()) if self.is_expected and can_be_read() else None
        return self._state(known, 0)

    def _state(self, manager: Any, depth: int) -> Any:
        kind, held = type(manager), held_by(manager)
        if (code := _code_of(manager)) is not None:
            return held["gen"] if self.is_own_file(code.co_filename) else None
        if issubclass(kind, STACKS) and depth < _NESTED_MAX:
            calls = [call for _, call in held.get(_CALLS_OF_STACK, ())]
            return [kind.__name__, *(self._pushed(one, depth) for one in calls)]
        if not self.is_own(kind):
            return None
        values = all_held_by(manager)
        names = read_by_end(kind, frozenset(values))
        names -= {*self.leaves_out(manager, names)}
        return [kind.__qualname__, {name: values[name] for name in sorted(names)}]

    def _pushed(self, call: Any, depth: int) -> Any:
        if isinstance(call, MethodType) and call.__name__ in EXITS:
            return self._state(call.__self__, depth + 1)
        if isinstance(call, FunctionType) and "__wrapped__" in held_by(call):
            return [self._called(one) for one in closed_over(call).values()]  # And what with.
        return self._called(call)

    def _called(self, value: Any) -> Any:
        """With what a function of the script's closes over: nothing else may hold that."""
        if not isinstance(value, FunctionType) or not self.is_own_file(value.__code__.co_filename):
            return value
        scope = scope_of(value.__code__)
        clocks = scope.clocks - scope.there
        held = {name: one for name, one in closed_over(value).items() if name not in clocks}
        return [value, held]


@dataclass(frozen=True)
class Above:
    """The same in a frame of contextlib's, so many above one of the script's: there a manager lies
    that a function of the script's is decorated with."""

    many: int
    around: Around

    def __call__(self, frame: FrameType) -> Any:
        above = frames_above(frame)
        return self.around(above[self.many]) if self.many < len(above) else None


def frames_above(frame: FrameType) -> list[FrameType]:
    """Of contextlib's, that have called a function of the script's, whatever library's lie between;
    innermost first."""
    found, above = list[FrameType](), frame.f_back
    while above is not None and is_installed(above.f_code.co_filename):
        if above.f_code.co_filename == contextlib.__file__:
            found.append(above)
        above = above.f_back
    return found


def is_followed(
    value: object, is_own: Callable[[type], bool], is_own_file: Callable[[str], bool]
) -> bool:
    """Whether it is a manager, or makes one, that is of the script's own, or an ExitStack.

    is_own, is_own_file: as in `Around`
    """
    if isinstance(value, MethodType):
        value = value.__func__
    code = _code_of(value)
    if isinstance(value, FunctionType):
        inner = held_by(value).get("__wrapped__")
        code = inner.__code__ if isinstance(inner, FunctionType) else value.__code__
    if code is not None:
        return is_own_file(code.co_filename)
    kind = value if isinstance(value, type) else type(value)
    return is_own(kind) or issubclass(kind, STACKS)


def _code_of(manager: object) -> CodeType | None:
    """Of the generator that one of contextlib's goes on with."""
    if module_of(type(manager)) != contextlib.__name__:
        return None
    match held_by(manager).get("gen"):
        case GeneratorType() as generator:
            return generator.gi_code
        case AsyncGeneratorType() as generator:
            return generator.ag_code
    return None


def read_by_end(kind: type, names: frozenset[str]) -> set[str]:
    """Those of an object's attributes that `__exit__` reads, or a method that it calls."""
    known = _named_by(kind, EXITS, "LOAD_")
    return {*names} if known & _BY_NAME else known & names


def stored_by_begin(kind: type) -> set[str]:
    """Attributes that `__enter__` stores to, or a method that it calls."""
    return _named_by(kind, _ENTERS, "STORE_ATTR")


@cached_by_class
def _named_by(kind: type, methods: tuple[str, ...], how: str) -> set[str]:
    """Names in these methods, and in those that they name, by instructions that begin so."""
    coming, seen, found = [*methods], {*methods}, set[str]()
    for name in coming:
        for function in _functions(kind, name):
            found |= {*_names_in(function.__code__, how)}
            named = {*_names_in(function.__code__, "LOAD_")}
            coming += sorted(named - seen)
            seen |= named
    return found


def _functions(kind: type, name: str) -> Iterator[FunctionType]:
    for one in kind.__mro__:
        value = vars(one).get(name)
        if isinstance(value, property):
            value = value.fget
        value = getattr(value, "__func__", value)
        if isinstance(value, FunctionType):
            yield value


def _names_in(code: CodeType, how: str) -> Iterator[str]:
    named = (one for one in dis.get_instructions(code) if one.opname.startswith(how))
    yield from (one.argval for one in named if type(one.argval) is str)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names_in(one, how)


@lru_cache(maxsize=8)
def _not_read(process: int) -> list[str]:
    """Another in each process, so it is refused."""
    return [f"{process} {os.urandom(8).hex()}"]
