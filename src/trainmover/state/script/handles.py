# SPDX-License-Identifier: Apache-2.0
"""Handles: objects that say nothing about what they hold, but have a name that is the same in all
processes, as process groups have. Each process has its own object of that name.

So a variable of the script that is a handle is compared by that name, and a joiner can be given it:
its own object is stored where the rank has the rank's. Nothing else of a script's is ever stored to
from outside, but plain values (`putting`).
"""

import ctypes
import inspect
import sys
from collections.abc import Callable
from types import CellType, FrameType
from typing import Any

_TELL: dict[type, Callable[[Any], tuple[str, str]]] = {}
_LOCALS_WRITE_THROUGH = sys.version_info >= (3, 13)
_BY_NAME = "by name"
OVER_BATCHES = "iterator over batches "
"""How one of a job is told, before the loop that it is of."""


def learn(kind: type, tell: Callable[[Any], tuple[str, str]]) -> None:
    """Objects of this type are handles. tell: the name, "" if it has none any more; and in words"""
    _TELL[kind] = tell


def is_one(kind: type) -> bool:
    """Whether objects of this type are handles."""
    return kind in _TELL


def fold_of(name: str) -> list[str]:
    """What stands for the value of the handle of that name."""
    return [_BY_NAME, name]


def folded(value: object) -> list[str]:
    """The same of this one; [] if it has no name any more."""
    name, _ = _TELL[type(value)](value)
    return fold_of(name) if name else []


def in_words(value: object) -> str:
    """For people."""
    return _TELL[type(value)](value)[1]


def store(owner: Any, name: str, value: object) -> None:
    """As the script would: in a frame, a cell, a dict, or an object with slots."""
    if isinstance(owner, FrameType):
        _store_local(owner, name, value)
    elif isinstance(owner, CellType):
        owner.cell_contents = value
    elif isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


def _store_local(frame: FrameType, name: str, value: object) -> None:
    """Before Python 3.13 what a frame shows of a function's locals is a copy, to be put back."""
    frame.f_locals[name] = value
    if not _LOCALS_WRITE_THROUGH and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
