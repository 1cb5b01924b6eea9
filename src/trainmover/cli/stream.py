# SPDX-License-Identifier: Apache-2.0
"""Stream of this process whose writes cannot fail, for who prints to files: rich."""

import io
from typing import TextIO, cast

from trainmover.cli.plain import PLAIN
from trainmover.outlet import Outlet, write_all


def stream(outlet: Outlet[TextIO], file: TextIO) -> TextIO:
    """Return a stream that sends all that is written through the outlet to the file."""
    return cast("TextIO", _Stream(outlet, file))


class _Stream(io.TextIOBase):
    def __init__(self, outlet: Outlet[TextIO], file: TextIO) -> None:
        self._outlet = outlet
        self._file = file

    def write(self, text: str) -> int:
        if text:
            self._outlet.put(self._file, text.encode(self.encoding, PLAIN))
        return len(text)

    def isatty(self) -> bool:
        return self._file.isatty()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._file.encoding or "utf-8"


def write_to(file: TextIO, data: bytes) -> None:
    """Past Python's buffer, which would keep what cannot be written and try it again at the end."""
    write_all(file.fileno(), data)
