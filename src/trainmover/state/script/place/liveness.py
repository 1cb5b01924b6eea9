# SPDX-License-Identifier: Apache-2.0
"""Which local names of a frame its code may still read: backward over its bytecode.

A name that is written before it is read, on every way from here, holds nothing that counts: that
is what tells the loss of the step before, or the time when it began, from a counter. Ways through
exceptions count as well, where one may be caught: what is stored between the fetch and there is not
stored then. Cells are not looked at: whoever shares them may read them at any time.

Two answers at a `for` that fetches: what is read if there is another round, and what is read if
the loop ends here.
"""

import dis
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from types import CodeType

from trainmover.state.script.place.by_text import asks_for_globals, read_by_text
from trainmover.state.script.place.withs import Span, handled_at, handlers, span_of, withs

_READS = {
    "LOAD_FAST",
    "LOAD_FAST_CHECK",
    "LOAD_FAST_AND_CLEAR",  # Around a comprehension, which puts it back.
    "LOAD_NAME",
    "LOAD_FAST_LOAD_FAST",
    "LOAD_FAST_BORROW",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW",
    "LOAD_FROM_DICT_OR_GLOBALS",
}
_WRITES = {"STORE_FAST", "DELETE_FAST", "STORE_NAME", "DELETE_NAME", "STORE_FAST_STORE_FAST"}
GOES_ON_ELSEWHERE = {
    "JUMP_FORWARD",
    "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT",
}
_RAISES_NOTHING = frozenset(
    {"RESUME", "NOP", "CACHE", "EXTENDED_ARG", "PRECALL", "KW_NAMES", "PUSH_NULL", "LOAD_CONST"}
    | {"COPY", "SWAP", "POP_TOP", "MAKE_CELL", "COPY_FREE_VARS", "PUSH_EXC_INFO", "POP_EXCEPT"}
    | {"LOAD_FAST", "LOAD_FAST_LOAD_FAST", "STORE_FAST", "STORE_FAST_STORE_FAST"}
    | {"STORE_FAST_LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"}
    | {"LOAD_SMALL_INT", "NOT_TAKEN", "STORE_NAME", *GOES_ON_ELSEWHERE}
)
_FROM_OUTSIDE = "KeyboardInterrupt"
"""What no line of a script raises: it comes to one machine, at any moment."""
_MAKES_ITERATOR = {"GET_ITER", "GET_AITER"}
_BEFORE_LOOP = frozenset(
    {"PRECALL", "LOAD_FAST_AND_CLEAR", "SWAP", "COPY", "BUILD_LIST", "BUILD_SET", "BUILD_MAP"}
    | {"CACHE", "NOP", "EXTENDED_ARG"}
)
"""Between the making of an iterator and its loop."""
_COLLECTS = {"LIST_APPEND", "SET_ADD", "MAP_ADD"}
_NEXT = frozenset({"next", "__next__"})
ENDS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"}
JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)


@dataclass(frozen=True)
class Live:
    """At one instruction.

    names    that may be read if the script goes on from here, and those of which the iterators of
             loops around were made: nobody sees how much these still hold
    at_end   those that are read only if the loop that fetches here has no further round
    targets  of the `for` loops around: they show how far an iterator is that has no name
    own_targets  of them, those of the loop that fetches with this instruction
    collects  a comprehension around holds what it has so far, where nobody sees it
    calls     a function is being called, and it is not `next`: it may hold something too
    loops     all loops around: offset of the FOR_ITER, and where it stands what they go through
    call      what is under way, if that is no loop: where it stands
    catches   an exception that comes out of what is under way may be caught here
    by_text   what comes later may read any global by a text
    stored    names that some way from here writes to, and nothing reads that an exception leads to
    in_rounds  of them, those that a way from here writes to which leads here again
    """

    names: frozenset[str]
    at_end: frozenset[str]
    targets: frozenset[str]
    own_targets: frozenset[str] = frozenset()
    collects: bool = False
    calls: bool = False
    loops: tuple[tuple[int, Span | None], ...] = ()
    call: Span | None = None
    catches: bool = False
    by_text: bool = False
    stored: frozenset[str] = frozenset()
    in_rounds: frozenset[str] = frozenset()


@lru_cache(maxsize=1024)
def live_at(
    code: CodeType, lasti: int, quiet: frozenset[int] | None = None, *, is_last: bool = False
) -> Live:
    """lasti: byte offset of the instruction that is under way, as frames have it; of one that calls
    a function of Python's, 3.11 has that of its last cache.

    quiet    offsets of the handlers of those `with`s that let every error pass (`swallowing`);
             None: all but those of a code that names contextlib's `suppress`
    is_last  nobody who has called this catches an exception: with one that this does not catch
             either the script ends
    """
    flow = flow_of(code, quiet, is_last=is_last)
    here = bisect_right(flow.offsets, lasti) - 1
    if here < 0:
        every = frozenset(flow.names)
        return Live(every, frozenset(), frozenset())
    is_for = flow.ops[here] == "FOR_ITER"
    ways = flow.ways[here][1:] if is_for else ()
    rest = flow.named(*(flow.live_in[way] for way in ways))
    names = flow.named(*(flow.live_in[way] for way in flow.successors[here] if way not in ways))
    at_end = rest - names
    own = frozenset(flow.targets(here + 1)) if is_for else frozenset[str]()
    calls = flow.ops[here].startswith("CALL") and not flow.draws_by_hand
    names |= flow.bounds_around(here)
    reached = [*flow.reached(here)]
    by_text, stored = not flow.by_text.isdisjoint(reached), flow.stored_by(reached)
    in_rounds = flow.stored_by(flow.leading_to(here) & {*reached})
    targets, collects = flow.targets_around(here), flow.collects_around(here)
    call = None if is_for else flow.span(here)
    loops = flow.loops_around(here)
    catches = flow.catches(here)
    found = Live(names, at_end, targets, own, collects, calls, loops, call)
    return replace(found, catches=catches, by_text=by_text, stored=stored, in_rounds=in_rounds)


class Flow:
    """The instructions of one code object, and what is live before each, as sets of bits.

    by_text  numbers of those that may have globals read by a text
    """

    def __init__(self, code: CodeType, quiet: frozenset[int], *, is_last: bool) -> None:
        """quiet, is_last: as in `live_at`"""
        self._code = code
        self._instructions = list(dis.get_instructions(code))
        self.ops = [one.opname for one in self._instructions]
        self.offsets = [one.offset for one in self._instructions]
        self.at = {one.offset: number for number, one in enumerate(self._instructions)}
        self.draws_by_hand = not _NEXT.isdisjoint(code.co_names)
        self.names: list[str] = []
        self._bits: dict[str, int] = {}
        self._known: dict[int, bool] = {}  # Of handlers: whether it goes on there.
        self._effects = [self._effect(one) for one in self._instructions]
        self.by_text = self._read_by_text(code)
        never = set(self._never_taken(quiet))
        self.ways = [  # But for those by an exception.
            [way for way in self._next(number) if (number, way) not in never]
            for number in range(len(self.ops))
        ]
        self._plain = set(self.reached(0))
        self.successors = [[*ways] for ways in self.ways]
        for number, handler in self._by_exception(code, is_last=is_last):
            self.successors[number].append(handler)
        if is_last:
            ends = {one for one in self._handlers() if not self._goes_on(one)}
            self.successors = [[one for one in ways if one not in ends] for ways in self.successors]
        self.live_in = self._solve()

    def named(self, *live: int) -> frozenset[str]:
        return frozenset(name for name in self.names if any(one & self._bits[name] for one in live))

    def catches(self, here: int) -> bool:
        """Whether an exception that comes out of an instruction may be caught, so that the code
        goes on."""
        return any(
            self._goes_on(self.at[one]) for one in handled_at(self._code, self.offsets[here])[:1]
        )

    def _goes_on(self, handler: int) -> bool:
        if handler not in self._known:
            reached = self._reached_by(self.successors, handler)
            self._known[handler] = any(
                one in self._plain or self.ops[one].startswith("RETURN_") for one in reached
            )
        return self._known[handler]

    def targets_around(self, here: int) -> frozenset[str]:
        found: set[str] = set()
        for loop in self._loops_around(here):
            found.update(self.targets(self.at[loop.offset] + 1))
        return frozenset(found)

    def bounds_around(self, here: int) -> frozenset[str]:
        """Names in what `for` loops and comprehensions around go through, as `many` in `for _ in
        range(many)`; but not of the loop that fetches with this very instruction."""
        return frozenset(name for head in self._heads(here) for name in self._bounds(head))

    def loops_around(self, here: int) -> tuple[tuple[int, Span | None], ...]:
        """With the one that fetches here."""
        heads = [self.at[one.offset] for one in self._loops_around(here)]
        return tuple((self.offsets[one], span_of(self._iterable(one)[1])) for one in heads)

    def span(self, here: int) -> Span | None:
        return span_of(self._instructions[here].positions)

    def _heads(self, here: int) -> list[int]:
        heads = [head for one in self._loops_around(here) if (head := self.at[one.offset]) != here]
        if self.ops[here] == "CALL":  # Before Python 3.12 a comprehension is a function's.
            heads.append(here)
        return heads

    def _iterable(self, head: int) -> tuple[int, dis.Positions]:
        """Where its iterator is made, and of what."""
        made = next((at for at in range(head, -1, -1) if self.ops[at] in _MAKES_ITERATOR), 0)
        between = {*self.ops[made + 1 : head]}
        is_known = self.ops[made] in _MAKES_ITERATOR and between <= _BEFORE_LOOP
        return made, (self._instructions[made].positions if is_known else None) or dis.Positions()

    def _bounds(self, head: int) -> Iterator[str]:
        made, where = self._iterable(head)
        for one, then in pairwise(self._instructions[: made + 1]):
            if one.opname not in _READS and one.opname != "STORE_FAST_LOAD_FAST":
                continue
            pair = isinstance(one.argval, tuple)  # It lies where the first of both does.
            if pair and _lies_in(then, where):
                yield one.argval[1]
            if one.opname in _READS and _lies_in(one, where):
                yield one.argval[0] if pair else one.argval

    def collects_around(self, here: int) -> bool:
        """Whether some `for` around puts values in a container below its iterator: only those of
        comprehensions do. Not `[next(batches) for _ in range(3)]`: a joiner draws them too."""
        return any(map(self._collects, self._loops_around(here)))

    def _loops_around(self, here: int) -> list[dis.Instruction]:
        """Outermost first. What handles an exception may lie behind all else: it is where it goes
        on."""
        goes_on = next((at for at in self.reached(here) if at in self._plain), here)
        places = {self.offsets[here], self.offsets[goes_on]}
        loops = [one for one in self._instructions if one.opname == "FOR_ITER"]
        return [one for one in loops if any(one.offset <= at < one.argval for at in places)]

    def reached(self, here: int) -> Iterator[int]:
        """From an instruction, itself first, and not by an exception."""
        return self._reached_by(self.ways, here)

    def leading_to(self, here: int) -> set[int]:
        """Those from which a way leads to this one, itself with them."""
        before: list[list[int]] = [[] for _ in self.ops]
        for number, ways in enumerate(self.ways):
            for way in ways:
                before[way].append(number)
        return {*self._reached_by(before, here)}

    def stored_by(self, reached: Iterable[int]) -> frozenset[str]:
        """Names that these instructions write to; but for those read where something fails."""
        written, failing = 0, 0
        for number in reached:
            written |= self._effects[number][1]
        for number, (read, _) in enumerate(self._effects):
            if number not in self._plain:
                failing |= read
        names = [name for name in self.names if self._bits[name] & written & ~failing]
        return frozenset(names)

    def _reached_by(self, ways_of: list[list[int]], here: int) -> Iterator[int]:
        known, coming = {here}, [here]
        for number in coming:
            yield number
            new = [way for way in ways_of[number] if way not in known]
            known.update(new)
            coming += new

    def _collects(self, loop: dis.Instruction) -> bool:
        """An iterator for each loop lies between the container and the value."""
        body = [one for one in self._instructions if loop.offset < one.offset < loop.argval]
        collects = any(
            loop in self._loops_around(self.at[one.offset])[1 - (one.arg or 0) :]
            for one in body
            if one.opname in _COLLECTS and (one.arg or 0) >= 2
        )
        calls = [one for one in body if one.opname.startswith("CALL")]
        return collects and not (len(calls) == 1 and self.draws_by_hand)

    def targets(self, number: int) -> Iterator[str]:
        """Names that the instructions from `number` on store one item in, as far as they do."""
        wanted = 1
        while wanted > 0 and number < len(self.ops):
            one = self._instructions[number]
            match one.opname:
                case "UNPACK_SEQUENCE":
                    wanted += int(one.argval) - 1
                case "UNPACK_EX":  # Those before a star, and those behind it.
                    wanted += (one.argval & 0xFF) + (one.argval >> 8)
                case "STORE_FAST" | "STORE_NAME" | "STORE_DEREF":
                    yield one.argval
                    wanted -= 1
                case "STORE_FAST_STORE_FAST":
                    yield from one.argval
                    wanted -= 2
                case "STORE_FAST_LOAD_FAST":
                    yield one.argval[0]
                    wanted -= 1
                case "STORE_ATTR" | "STORE_SUBSCR" | "STORE_GLOBAL":
                    wanted -= 1
                case name if not name.startswith(("LOAD_", "CACHE", "EXTENDED_ARG")):
                    return
            number += 1

    def _bit(self, name: str) -> int:
        if name not in self._bits:
            self._bits[name] = 1 << len(self.names)
            self.names.append(name)
        return self._bits[name]

    def _effect(self, one: dis.Instruction) -> tuple[int, int]:
        """Bits that it reads, and that it writes; what it reads of its own store is not read."""
        names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        if one.opname in _READS:
            return self._all(names), 0
        if one.opname in _WRITES:
            return 0, self._all(names)
        if one.opname == "LOAD_CONST" and self._code.co_name == "<module>":
            return self._all(_read_at_once(one.argval)), 0
        if one.opname == "STORE_FAST_LOAD_FAST":
            written, read = names
            return self._all((read,)) & ~self._all((written,)), self._all((written,))
        return 0, 0

    def _all(self, names: Iterable[str]) -> int:
        bits = 0
        for name in names:
            bits |= self._bit(name)
        return bits

    def _next(self, number: int) -> Iterator[int]:
        """What may come after it; of a `for` the next round first."""
        one = self._instructions[number]
        if one.opname in ENDS:
            return
        if one.opname not in GOES_ON_ELSEWHERE and number + 1 < len(self.ops):
            yield number + 1
        if one.opcode in JUMPS and one.argval in self.at:
            yield self.at[one.argval]

    def _by_exception(self, code: CodeType, *, is_last: bool) -> Iterator[tuple[int, int]]:
        """Instructions that may raise, each with where it goes on then; where nobody else catches
        it, not out of a loop that is left for good, as where a script says what it has failed at.
        """
        in_loops = self._in_loops() & self._plain if is_last else set[int]()
        for entry in handlers(code):
            first, last = (bisect_left(self.offsets, at) for at in (entry.start, entry.end))
            after = [entry.target, *handled_at(code, entry.target)]
            reached = {way for one in after for way in self.reached(self.at[one])}
            for one in range(first, last):
                is_left = one in in_loops and one not in reached
                if self.ops[one] not in _RAISES_NOTHING and not is_left:
                    yield one, self.at[entry.target]

    def _in_loops(self) -> set[int]:
        jumps = [
            (self.at[one.argval], number)
            for number, one in enumerate(self._instructions)
            if one.opcode in JUMPS and one.argval in self.at
        ]
        loops = [range(to, number + 1) for to, number in jumps if to <= number]
        return {one for loop in loops for one in loop}

    def _handlers(self) -> set[int]:
        return {self.at[entry.target] for entry in handlers(self._code)}

    def _never_taken(self, quiet: frozenset[int]) -> Iterator[tuple[int, int]]:
        """Ways on which a `with` that lets every error pass keeps one; and on which an exception is
        caught that comes from outside."""
        for number, name in enumerate(self.ops):
            if name == "WITH_EXCEPT_START" and self._handler_of(number) in quiet:
                yield from self._jump_behind(number, "IF_TRUE", taken=True)
            asked = self._instructions[number - 1] if name == "CHECK_EXC_MATCH" else None
            if asked is not None and asked.opname[:5] == "LOAD_" and asked.argval == _FROM_OUTSIDE:
                yield from self._jump_behind(number, "IF_FALSE", taken=False)

    def _handler_of(self, number: int) -> int:
        """Of a `with`, where it is asked about an exception."""
        known = (self.offsets[one] for one in range(number, -1, -1))
        return next(one for one in known if one in withs(self._code))

    def _jump_behind(self, number: int, kind: str, *, taken: bool) -> Iterator[tuple[int, int]]:
        """The way from the next such jump that is taken if it jumps; or if it does not."""
        for at in range(number, len(self.ops)):
            if self.ops[at].startswith("POP_JUMP_") and self.ops[at].endswith(kind):
                yield at, self.at[self._instructions[at].argval] if taken else at + 1
                return

    def _read_by_text(self, code: CodeType) -> frozenset[int]:
        """What may be read by a text is read by that instruction."""
        for number, names in read_by_text(code, self._instructions):
            read, written = self._effects[number]
            known = self.names if names is None else self._bits.keys() & names
            self._effects[number] = read | self._all(known), written
        return frozenset(asks_for_globals(code, self._instructions))

    def _solve(self) -> list[int]:
        live = [0] * len(self.ops)
        changed = True
        while changed:
            changed = False
            for number in range(len(self.ops) - 1, -1, -1):
                out = 0
                for way in self.successors[number]:
                    out |= live[way]
                read, written = self._effects[number]
                now = read | (out & ~written)
                if now != live[number]:
                    live[number], changed = now, True
        return live


def _read_at_once(value: object) -> Iterator[str]:
    """Globals that a comprehension at the top of a file reads, or a function without a name."""
    if isinstance(value, CodeType) and value.co_name[:1] == "<":
        for one in dis.get_instructions(value):
            if one.opname == "LOAD_GLOBAL":
                yield one.argval
        for inner in value.co_consts:
            yield from _read_at_once(inner)


def _lies_in(one: dis.Instruction, where: dis.Positions) -> bool:
    at = one.positions
    if at is None or None in (*at, *where):
        return False
    begins = (where.lineno, where.col_offset) <= (at.lineno, at.col_offset)
    return begins and (at.end_lineno, at.end_col_offset) <= (where.end_lineno, where.end_col_offset)


def flow_of(code: CodeType, quiet: frozenset[int] | None, *, is_last: bool = False) -> Flow:
    """quiet, is_last: as in `live_at`"""
    if quiet is None:
        quiet = frozenset() if "suppress" in code.co_names else frozenset(withs(code))
    return _flow(code, quiet, is_last)


@lru_cache(maxsize=256)
def _flow(code: CodeType, quiet: frozenset[int], is_last: bool) -> Flow:
    return Flow(code, quiet, is_last=is_last)
