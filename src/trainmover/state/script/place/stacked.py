# SPDX-License-Identifier: Apache-2.0
"""The managers of the `with`s that a frame is in, and the iterators of a generator's loops.

They lie on the frame's stack, which Python shows nobody. At which level one lies follows from the
bytecode. Where a frame has its variables, behind which the stack lies, is looked for once, in a
frame of which it is known. Where it is not found, and at a level that is not certain, nothing is
read.
"""

import ctypes
import dis
import os
import struct
import sys
from collections.abc import Callable, Iterator, Set
from functools import cache, lru_cache
from types import (
    BuiltinMethodType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

from trainmover.state.script.place.liveness import ENDS, GOES_ON_ELSEWHERE, JUMPS
from trainmover.state.script.place.withs import EXITS

_WORD = struct.Struct("N")
_KIND = object.__basicsize__ - _WORD.size
"""Bytes from an object's address to its type."""
_IN_FRAME, _IN_MEMORY = range(16, 64, _WORD.size), range(32, 160, _WORD.size)
"""Where in a frame the address of its memory may stand, and in that the first variable."""


_BOUND = frozenset({id(MethodType), id(BuiltinMethodType), id(MethodWrapperType)})
_FREE = frozenset({id(FunctionType), id(MethodDescriptorType), id(WrapperDescriptorType)})
_APART = sys.version_info >= (3, 14)
"""Whether a function and what it is called on lie on the stack side by side. Its entries are marked
then: in bits that no address has."""
Reader = Callable[[FrameType], Any]


def owner_at(frame: FrameType, level: int) -> Any:
    """Whose `__exit__` lies there, of a `with` whose body this frame runs; None: nobody knows.

    level: of `withs`
    """
    if not _APART:
        found = _object_at(address_at(frame, level), _BOUND)
        return found.__self__ if found is not None and _is_manager(found.__self__) else None
    address, function = (address_at(frame, at) & -_WORD.size for at in (level, level - 1))
    found = _object_at(function, _BOUND | _FREE)
    if getattr(found, "__name__", "") not in EXITS:
        return None
    if id(type(found)) in _BOUND:
        return found.__self__
    return ctypes.cast(address, ctypes.py_object).value if address else None


def _is_manager(value: object) -> bool:
    """By its class: `__exit__` may be another function there, by another name."""
    return any(name in vars(one) for one in type(value).__mro__ for name in EXITS)


def can_be_read() -> bool:
    """Whether this process can see where frames have their stacks."""
    return _places() is not None


def _object_at(address: int, kinds: Set[int]) -> Any:
    if not address or address % _WORD.size or _word(address + _KIND) not in kinds:
        return None
    return ctypes.cast(address, ctypes.py_object).value


def address_at(frame: FrameType, level: int) -> int:
    """Of what lies there on the stack of a frame that does not run meanwhile; 0: nobody knows."""
    places = _places()
    if places is None:
        return 0
    in_frame, in_memory = places
    variables = _word(id(frame) + in_frame) + in_memory
    return _word(variables + (_variables_of(frame.f_code) + level) * _WORD.size)


def _word(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


@lru_cache(maxsize=1024)
def _variables_of(code: CodeType) -> int:
    """For how many a frame has place. A cell that is a variable as well has one."""
    cells = {*code.co_cellvars} - {*code.co_varnames}
    return code.co_nlocals + len(cells) + len(code.co_freevars)


# --- at which level -------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def levels(code: CodeType) -> dict[int, int]:
    """By the offset of each FOR_ITER where on the stack its iterator lies, as far as is certain."""
    found: dict[int, int] = {}
    uncertain = set[int]()
    for one, depth in _depths(code):
        if one.opname == "FOR_ITER" and found.setdefault(one.offset, depth - 1) != depth - 1:
            uncertain.add(one.offset)
    return {offset: level for offset, level in found.items() if offset not in uncertain}


def _depths(code: CodeType) -> Iterator[tuple[dis.Instruction, int]]:
    """Instructions that may be reached, each with how many values lie on the stack before it."""
    every = list(dis.get_instructions(code))
    at = {one.offset: number for number, one in enumerate(every)}
    handlers = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    known: set[tuple[int, int]] = set()
    coming = [(0, 0)]
    while coming:
        number, depth = coming.pop()
        if (number, depth) in known or number >= len(every):
            continue
        known.add((number, depth))
        one = every[number]
        yield one, depth
        for handler in handlers:
            if handler.start <= one.offset < handler.end:
                coming.append((at[handler.target], handler.depth + handler.lasti + 1))
        if one.opcode in JUMPS and one.argval in at:
            coming.append((at[one.argval], depth + _effect(one, jump=True)))
        if one.opname not in ENDS and one.opname not in GOES_ON_ELSEWHERE:
            coming.append((number + 1, depth + _effect(one, jump=False)))


def _effect(one: dis.Instruction, *, jump: bool) -> int:
    if one.opname == "RETURN_GENERATOR":  # Whoever resumes a generator gives it something.
        return 1
    argument = one.arg if one.opcode >= dis.HAVE_ARGUMENT else None
    return dis.stack_effect(one.opcode, argument, jump=jump)


# --- where a frame has it -------------------------------------------------------------------------


@cache
def _places() -> tuple[int, int] | None:
    """Where in a frame the address of its memory stands, and where in that its first variable."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _found_in(memory)
    finally:
        os.close(memory)


def _found_in(memory: int) -> tuple[int, int] | None:
    first, second, one = object(), iter((1, 2)), iter([1])
    found: list[tuple[int, int]] = []
    for _ in one:
        frame = sys._getframe()
        code = frame.f_code
        level = _variables_of(code) + levels(code)[min(levels(code))]
        names = code.co_varnames
        known = {names.index("first"): first, names.index("second"): second, level: one}
        for in_frame in _IN_FRAME:
            address = _read(memory, id(frame) + in_frame)
            for in_memory in _IN_MEMORY if address else ():
                words = {at: _read(memory, address + in_memory + at * _WORD.size) for at in known}
                if words == {at: id(value) for at, value in known.items()}:
                    found.append((in_frame, in_memory))
    return found[0] if len(found) == 1 else None


def _read(memory: int, address: int) -> int:
    """By the system, which says so where there is nothing; 0 then."""
    try:
        read = os.pread(memory, _WORD.size, address)
    except (OSError, OverflowError, ValueError):
        return 0
    return _WORD.unpack(read)[0] if len(read) == _WORD.size else 0
