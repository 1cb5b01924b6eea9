# SPDX-License-Identifier: Apache-2.0
"""Whether a code object goes on in the same way from two of its instructions: forward over its
bytecode, from both at once, until they come to the same instruction.

A script that draws the first batch of a pass before a `while` loop, and the others in it, goes on
in the same way from both if nothing but the loop's condition lies between: of that the compiler
makes two copies. Whoever stands at one of the two can go on for a rank that stood at the other.
"""

import dis
from bisect import bisect_left
from functools import lru_cache
from types import CodeType

from trainmover.state.script.place.liveness import ENDS, GOES_ON_ELSEWHERE, JUMPS
from trainmover.state.script.place.withs import handled_at

_NOTHING = frozenset(
    {"CACHE", "NOP", "EXTENDED_ARG", "NOT_TAKEN", "PRECALL", "MAKE_CELL", "COPY_FREE_VARS"}
)
_PRECALL_BYTES = 4
"""Of 3.11, before a call: some functions are called by it."""
_BEFORE_STATEMENT = ("STORE_", "POP_", "RESUME", "END_", "DELETE_", *GOES_ON_ELSEWHERE, *ENDS)
_IF = {"FALSE": ("TRUE", False), "TRUE": ("TRUE", True), "NOT_NONE": ("NONE", False)}
_IF |= {"NONE": ("NONE", True)}
"""What a conditional jump asks, and for which answer it is taken."""


@lru_cache(maxsize=1024)
def under_way(code: CodeType, lasti: int) -> int:
    """Offset of the instruction that is under way: the same in every process. What frames have
    instead is where the interpreter stands in it, which changes as a line has run some times.

    lasti: as frames have it
    """
    every = dis.get_instructions(code)
    here = next((one for one in reversed([*every]) if one.offset <= lasti), None)
    if here is None:
        return -1
    return int(here.offset) + (_PRECALL_BYTES if here.opname == "PRECALL" else 0)


@lru_cache(maxsize=256)
def go_on_alike(code: CodeType, here: int, there: int) -> bool:
    """here, there: as from `under_way`. False also where nobody can tell."""
    if here == there:
        return True
    flow = _Flow(code)
    pair = flow.at(here), flow.at(there)
    if -1 in pair or not flow.began_alike(*pair):
        return False
    known, coming = {pair}, [pair]
    for one, other in coming:
        if one == other:
            continue
        (does, ways), (does_there, ways_there) = flow.does(one), flow.does(other)
        if does != does_there or flow.caught_at(one) != flow.caught_at(other):
            return False
        new = [both for both in zip(ways, ways_there, strict=True) if both not in known]
        known.update(new)
        coming += new
    return True


class _Flow:
    """The instructions of one code object that do something, by their numbers."""

    def __init__(self, code: CodeType) -> None:
        self._code, every = code, dis.get_instructions(code)
        self._every = [one for one in every if one.opname not in _NOTHING]
        self._offsets = [one.offset for one in self._every]

    def at(self, offset: int) -> int:
        """Number of the instruction there; -1: there is none."""
        number = bisect_left(self._offsets, offset)
        return number if self._offsets[number : number + 1] == [offset] else -1

    def began_alike(self, one: int, other: int) -> bool:
        """Whether the two statements have done the same so far, so that the same lies ready."""
        while one >= 0 and other >= 0:
            if self._does(one) != self._does(other):
                return False
            begins = self._begins(one), self._begins(other)
            if any(begins):
                return all(begins)
            one, other = one - 1, other - 1
        return False

    def _begins(self, number: int) -> bool:
        if self._every[number].opname == "FOR_ITER":
            return True
        before = self._every[number - 1].opname if number else "RESUME"
        return bool(self._every[number].starts_line) and before.startswith(_BEFORE_STATEMENT)

    def does(self, number: int) -> tuple[object, tuple[int, ...]]:
        """And what follows: by a jump that asks, first if it holds."""
        one = self._every[number]
        if one.opname in ENDS:
            return self._does(number), ()
        behind = self._led_on(number + 1)
        if one.opcode not in JUMPS:
            return self._does(number), (behind,)
        asked, taken = self._asked(number)
        ways = behind, self._led_on(bisect_left(self._offsets, one.argval))
        return asked, ways[::-1] if taken else ways

    def _does(self, number: int) -> object:
        one = self._every[number]
        done = one.opname, one.argrepr or one.arg
        return self._asked(number)[0] if one.opcode in JUMPS else done

    def caught_at(self, number: int) -> tuple[int, ...]:
        """Where an exception goes that comes out of it."""
        return handled_at(self._code, self._offsets[number])

    def _asked(self, number: int) -> tuple[str, bool]:
        name = self._every[number].opname
        if name.startswith("POP_JUMP_"):
            return _IF[name.partition("IF_")[2]]
        return name, False

    def _led_on(self, number: int) -> int:
        """Where jumps lead that ask nothing."""
        known = set[int]()
        while self._every[number].opname in GOES_ON_ELSEWHERE and number not in known:
            known.add(number)
            number = bisect_left(self._offsets, self._every[number].argval)
        return number
