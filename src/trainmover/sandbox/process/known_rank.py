# SPDX-License-Identifier: Apache-2.0
"""Whether a library has read, as it was imported, which rank this process is.

It is imported once in the life of the process, and may keep what it has read in a way that nobody
can put back: a function that is decorated for rank 0 alone, say. Then the process is of use for
that rank only.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any

from trainmover.sandbox.process.libraries import is_librarys

_VARIABLES = frozenset({"RANK", "ROLE_RANK", "GROUP_RANK"})
"""Of the environment: what they say differs from run to run, as the rank does."""
_WAYS = frozenset({"os", Mapping.__module__})
"""Modules by which others read it."""
_MANY = 8
"""Variables. Who reads so many at one place reads all there are, and asks for none."""
_Place = tuple[str, CodeType, int]
"""Module, function and instruction."""


class KnownRank:
    """One for the process: `begins` and `ends` are called around imports of what stays loaded."""

    def __init__(self) -> None:
        self._environ: Any = type(os.environ)
        self._getitem = self._environ.__getitem__
        self._read: defaultdict[_Place, set[str]] = defaultdict(set)
        self._library = self._rank = ""

    def begins(self) -> None:
        getitem, note = self._getitem, self._note

        def noted(environ: Any, key: Any) -> Any:
            note(sys._getframe(1), key)
            return getitem(environ, key)

        self._environ.__getitem__ = noted

    def ends(self) -> None:
        self._environ.__getitem__ = self._getitem
        for (module, _, _), names in self._read.items():
            asks = len(names) < _MANY and not names.isdisjoint(_VARIABLES)
            if asks and not self._library and is_librarys(module):
                self._library, self._rank = module, os.environ.get("RANK", "")
        self._read.clear()

    def other_than(self, rank: int) -> str:
        """Why this process cannot be that rank; "" if it can."""
        if not self._library or self._rank == str(rank):
            return ""
        return (
            f"`{self._library}` has read which rank it is as it was imported, and that was "
            f"{self._rank}"
        )

    def _note(self, frame: FrameType | None, key: str) -> None:
        while frame is not None and frame.f_globals.get("__name__") in _WAYS:
            frame = frame.f_back
        if frame is not None:
            name = str(frame.f_globals.get("__name__"))
            self._read[name, frame.f_code, frame.f_lasti].add(key)
