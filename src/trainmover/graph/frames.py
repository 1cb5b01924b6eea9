# SPDX-License-Identifier: Apache-2.0
"""Frames of the running script: where each one stands, and its local variables.

The only file that knows how CPython keeps local variables. Two processes stand at the same place if
their stacks have the same functions, each at the same expression of the source. Values that lie on
a frame's evaluation stack are not read: loops keep their iterators in variables (`loops`).
"""

import ctypes
import gc
import inspect
import itertools
import sys
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from trainmover.graph.script import CodeKey, code_key

_PACKAGE = __name__.partition(".")[0]
WITH_STATE = {f"{_PACKAGE}.loops.iterators"}
"""Modules of this package whose frames hold variables of the script's."""
_WRITES_THROUGH = sys.version_info >= (3, 13)
"""From 3.13 on `f_locals` of a function is a view of its variables (PEP 667)."""


class Stand(NamedTuple):
    """Position where one frame stands: its code, and the source range of the expression under
    evaluation."""

    code: CodeKey
    position: tuple[int | None, ...]


def script_frames(innermost: types.FrameType | None, main: dict[str, Any]) -> list[types.FrameType]:
    """Return the frames from the script's first one to `innermost`, without those of this package.

    main  names of the script's main module, by which its first frame is known
    """
    found = []
    frame = innermost
    while frame is not None:
        if not _is_ours(frame) or frame.f_globals["__name__"] in WITH_STATE:
            found.append(frame)
            if frame.f_globals is main and frame.f_code.co_name == "<module>":
                break
        frame = frame.f_back
    return found[::-1]


def innermost(frame: types.FrameType) -> types.FrameType:
    """Return the first frame from here outwards that is not of this package."""
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def _is_ours(frame: types.FrameType) -> bool:
    return (frame.f_globals.get("__name__") or "").partition(".")[0] == _PACKAGE


def place_of(frames: list[types.FrameType]) -> list[Stand]:
    """Return where a stack stands: equal in every process that executes the same expressions."""
    return [Stand(code_key(one.f_code), position_of(one.f_code, one.f_lasti)) for one in frames]


def position_of(code: types.CodeType, instruction: int) -> tuple[int | None, ...]:
    positions = _positions(code)
    at = instruction // 2
    return positions[at] if 0 <= at < len(positions) else (None,) * 4


@lru_cache(maxsize=512)
def instruction_of(code: types.CodeType, instruction: int) -> int:
    """Return the last of the instructions that evaluate one expression: a call may be made by one
    or by the next one, as CPython has come to know the called function (PEP 659)."""
    positions = _positions(code)
    at = instruction // 2
    while 0 <= at < len(positions) - 1 and positions[at + 1] == positions[at]:
        at += 1
    return 2 * at


@lru_cache(maxsize=512)
def _positions(code: types.CodeType) -> list[tuple[int | None, ...]]:
    """Return the source range of each instruction; entries of inline caches have their owner's."""
    return list(itertools.islice(code.co_positions(), len(code.co_code) // 2))


def is_module_level(frame: types.FrameType) -> bool:
    """Tell whether a frame's variables are the names of a module."""
    return frame.f_locals is frame.f_globals


def locals_of(frame: types.FrameType) -> dict[str, Any]:
    """Return the local variables of a frame by name, free variables and cells included."""
    return {} if is_module_level(frame) else dict(frame.f_locals)


def set_locals(frame: types.FrameType, values: dict[str, Any]) -> None:
    """Make these the local variables of a running or suspended frame; others are unset."""
    names = frame.f_locals
    if _WRITES_THROUGH:
        for name, value in values.items():
            if names.get(name, values) is not value:
                names[name] = value
        for name in [one for one in names if one not in values]:
            _unset(frame, names, name)
        return
    names.clear()
    names.update(values)
    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(1))


def _unset(frame: types.FrameType, names: Any, name: str) -> None:
    try:
        del names[name]
    except ValueError:  # Before 3.14 a variable of a function cannot be unset by this view.
        names[name] = None


def running_generators(frames: list[types.FrameType]) -> list[object]:
    """Return the generator object of each frame that is a running generator's, outermost first."""
    flags = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    return [_generator_of(one) for one in frames if one.f_code.co_flags & flags]


def _generator_of(frame: types.FrameType) -> object:
    def runs(one: object) -> bool:
        return isinstance(one, types.GeneratorType | types.CoroutineType) and _frame(one) is frame

    caller = {} if frame.f_back is None else frame.f_back.f_locals
    near = [*caller.values(), *(getattr(one, "iterator", None) for one in caller.values())]
    return _first(near, runs) or _first(gc.get_referrers(frame), runs)


def _first(candidates: list[object], fits: Callable[[object], bool]) -> object:
    return next((one for one in candidates if fits(one)), None)


def _frame(generator: Any) -> types.FrameType | None:
    frame: types.FrameType | None = getattr(generator, "gi_frame", None) or getattr(
        generator, "cr_frame", None
    )
    return frame
