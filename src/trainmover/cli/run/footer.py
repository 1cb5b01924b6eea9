# SPDX-License-Identifier: Apache-2.0
"""The last line of a run's screen: how far it is. On a terminal it stays below what is said; where
nobody looks on it comes as a plain line, once a minute."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from trainmover.escaping import one_line

DRAWN_S = 0.2
TOLD_S = 60.0
_CLEAR = "\r\x1b[K"
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class Footer:
    """text: makes the line, given the columns of the terminal (0: there is none); "" if there is
    nothing to say. clock: seconds."""

    def __init__(
        self, to: TextIO, columns: int, text: Callable[[int], str], clock: Callable[[], float]
    ) -> None:
        self._to, self._columns, self._text, self._clock = to, columns, text, clock
        self._shown = ""
        self._next = 0.0 if columns else clock() + TOLD_S

    def look(self) -> None:
        """Something has changed: draw it, unless that was done a moment ago."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + (DRAWN_S if self._columns else TOLD_S)
        text = one_line(self._text(self._columns))
        if not text:
            return
        if not self._columns:
            self._to.write(f"{text}\n")
        elif text != self._shown:
            self._draw(text)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the footer away while something else is written."""
        if self._shown:
            self._to.write(_CLEAR)
        yield
        if self._shown:
            self._draw(self._shown)

    def close(self) -> None:
        if self._shown:
            self._to.write(_CLEAR)
        self._shown = ""
        self._next = float("inf")

    def _draw(self, text: str) -> None:
        self._shown = text
        self._to.write(f"{_CLEAR}{_DIM}{text}{_PLAIN}")


def columns_of(stream: TextIO) -> int:
    """Return the columns of the terminal; 0 if it is none, or a dumb one."""
    if not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return 0
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except OSError:
        return 0
