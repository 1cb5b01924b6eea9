# SPDX-License-Identifier: Apache-2.0
"""Iterators and suspended generators: how far each one is.

CPython tells the place of its own iterators by `__reduce__` (up to 3.13). A generator is matched by
its code and the instruction at which it is suspended; its variables are restored in its frame.
"""

import gc
import itertools
import sys
import types
from typing import TYPE_CHECKING, Any

from trainmover.graph import frames
from trainmover.graph.kinds.kind import HOLE, MISSING, Body, Kind, Refs, is_same_part, item
from trainmover.graph.kinds.positioned import is_positioned
from trainmover.graph.nodes import Path, Ref
from trainmover.graph.script import CodeKey, code_key
from trainmover.loops.turns import KINDS

if TYPE_CHECKING:
    from trainmover.graph.restore import Restore
    from trainmover.graph.walk import Walk

SEQUENCES = frozenset[type](map(type, map(iter, ([], (), range(1), "", b""))))
"""Iterators that are an index into a sequence, which `__setstate__` sets."""
_COPIED: frozenset[type] = frozenset(map(type, map(iter, (set(), {}, {}.values(), {}.items()))))
"""Iterators of which `__reduce__` gives a list of what is left, so they are made anew."""
_NAMES = (
    *("count", "cycle", "repeat", "accumulate", "chain", "compress", "dropwhile", "filterfalse"),
    *("islice", "starmap", "takewhile", "zip_longest", "product", "permutations"),
    *("combinations", "groupby", "_tee_dataobject"),
)
_OTHERS: tuple[Any, ...] = (
    *(enumerate, zip, map, filter, reversed, type(reversed([])), type(itertools.tee([])[0])),
    *(type(iter(range(2**70))), type(iter(int, 1))),
    *(getattr(itertools, name) for name in _NAMES),
)
TYPES: frozenset[type] = SEQUENCES | _COPIED | frozenset(_OTHERS)
_MAKERS = TYPES | {iter, reversed}
"""What `__reduce__` of these iterators names; nothing else is called."""
_LOOPS = frozenset(KINDS)
_REMADE = _COPIED | {itertools.cycle, itertools.count, itertools.repeat}
_STEPS_MAX = 64
"""Items that a new generator is asked for on its way to the place of another."""


class Iterator(Kind):
    """An iterator of Python's or of itertools."""

    name = "iterator"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        make, arguments, *rest = obj.__reduce__()
        state = rest[0] if rest else None
        kind = walk.ref(type(obj), path, ".<type>")
        if type(obj) in SEQUENCES and state is None:
            return kind, None, [], None
        return (
            kind,
            walk.ref(make, path, ".<maker>"),
            [walk.ref(one, path, "()") for one in arguments],
            walk.ref(state, path, ".<state>"),
        )

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        kind, make, arguments, state = body
        if make is None:
            return restore.take(ref, _exhausted(live))
        cls: Any = restore.get(kind)
        old, old_state = self._parts(live, cls, ref, restore)
        was = [old[n] if n < len(old) else MISSING for n in range(len(arguments))]
        new = [restore.get(one, before) for one, before in zip(arguments, was, strict=True)]
        state = restore.get(state, old_state)
        maker: Any = restore.get(make)
        if maker not in _MAKERS or any(one is HOLE for one in new):
            return HOLE if live is MISSING else live
        if old and cls not in _REMADE and all(map(is_same_part, was, new)):
            if old_state is state or (type(state) is int and old_state == state):
                return restore.take(ref, live)
            if cls in SEQUENCES:
                live.__setstate__(state)
                return restore.take(ref, live)
        made = maker(*new)
        if state is not None:
            made.__setstate__(state)
        return restore.take(ref, made)

    def _parts(self, live: Any, cls: Any, ref: int, restore: "Restore") -> tuple[Any, Any]:
        """Return arguments and state of the live iterator, if it can be kept."""
        may_keep = cls not in _REMADE or cls is itertools.cycle
        if type(live) is not cls or not may_keep or not restore.is_free(live, ref):
            return (), None
        _, arguments, *rest = live.__reduce__()
        if cls in SEQUENCES and not rest:
            return (), None
        return arguments, rest[0] if rest else None


def _exhausted(live: Any) -> Any:
    iterator = live if type(live) in SEQUENCES else iter(())
    iterator.__setstate__(sys.maxsize)
    next(iterator, None)
    return iterator


class Generator(Kind):
    """A generator: not begun, suspended, running or over."""

    name = "generator"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        frame = obj.gi_frame
        key = tuple(code_key(obj.gi_code))
        if frame is None:
            return key, (None,), None, {}, []
        values = {} if obj.gi_running else frames.locals_of(frame)
        function = walk.ref(_function_of(obj), path, ".<function>")
        held = [] if obj.gi_running else _held_iterators(obj, values)
        return (
            key,
            function,
            _place(obj),
            {name: walk.ref(value, path, f".<{name}>") for name, value in values.items()},
            [walk.ref(one, path, item(n)) for n, one in enumerate(held)],
        )

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        key, function, place, values, held = body
        wanted = CodeKey(*key)
        if not self._fits(live, wanted, ref, place, restore):
            live = self._other(wanted, function, live, place, restore)
            if live is HOLE:
                return HOLE
        restore.take(ref, live)
        if place is None:
            live.close()
            return live
        if not live.gi_running:
            self._fill(live, key[1], place, values, held, restore)
        return live

    @staticmethod
    def _fits(live: Any, key: CodeKey, ref: int, place: int | None, restore: "Restore") -> bool:
        return (
            isinstance(live, types.GeneratorType)
            and code_key(live.gi_code) == key
            and restore.is_free(live, ref)
            and place == _place(live)
        )

    @staticmethod
    def _other(
        key: CodeKey, function: Ref, live: Any, place: int | None, restore: "Restore"
    ) -> Any:
        """Return a displaced generator at this place, or one that has not begun; or HOLE.

        The arguments of one that has not begun are set afterwards.
        """
        if place is None and isinstance(live, types.GeneratorType):
            return live
        spare = restore.spare(
            types.GeneratorType,
            lambda one: code_key(one.gi_code) == key and _place(one) == place,
        )
        if spare is not MISSING:
            return spare
        make = restore.get(function)
        if not isinstance(make, types.FunctionType):
            restore.again = True  # One may be left over when all else has its place.
            return HOLE
        code = make.__code__
        named = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        return make(*[None] * code.co_argcount, **dict.fromkeys(named))

    @staticmethod
    def _fill(
        live: Any,
        name: str,
        place: int,
        values: dict[str, Ref],
        held: Refs,
        restore: "Restore",
    ) -> None:
        if place != -1 and _place(live) == -1:
            arguments = live.gi_code.co_varnames
            count = live.gi_code.co_argcount + live.gi_code.co_kwonlyargcount
            first = {one: values[one] for one in arguments[:count] if one in values}
            restore.locals(live.gi_frame, first)
        steps = 0
        while place != -1 and _place(live) not in (place, None) and steps < _STEPS_MAX:
            restore.again, steps = True, steps + 1
            try:
                next(live, None)
            except Exception as error:  # noqa: BLE001  Of the script's own code.
                restore.note(f"generator {name} raised {type(error).__name__} on its way")
        if _place(live) != place:
            restore.note(f"generator {name} is at another place")
            return
        old = _held_iterators(live, frames.locals_of(live.gi_frame))
        with restore.by_path():  # Its loops hold these iterators, and no others.
            for number, one in enumerate(held):
                was = old[number] if number < len(old) else MISSING
                if restore.get(one, was) is not was:
                    restore.note(f"generator {name}: a loop's iterator cannot be exchanged")
        restore.locals(live.gi_frame, values)


def _place(generator: Any) -> int | None:
    """Return where a generator stands: -1 if it has not begun, None if it is over."""
    if generator.gi_frame is None:
        return None
    begun = generator.gi_running or generator.gi_suspended
    return generator.gi_frame.f_lasti if begun else -1


def _function_of(generator: Any) -> Any:
    """Return the function that made a generator, which its frame refers to."""
    code = generator.gi_code
    return next(
        (
            one
            for one in gc.get_referents(generator)
            if type(one) is types.FunctionType and one.__code__ is code
        ),
        None,
    )


def _held_iterators(generator: Any, values: dict[str, Any]) -> list[Any]:
    """Return the iterators that a suspended generator's loops hold on its stack.

    Those of rewritten loops lie in variables, too; of a library's they lie nowhere else.
    """
    variables = {id(value) for value in values.values()}
    found: dict[int, Any] = {}
    for one in gc.get_referents(generator):
        kind = type(one)
        hidden = kind in TYPES or kind is types.GeneratorType or is_positioned(kind)
        if kind in _LOOPS or (hidden and id(one) not in variables):
            found[id(one)] = one
    return [*found.values()]
