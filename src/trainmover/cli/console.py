# SPDX-License-Identifier: Apache-2.0
"""Print styles and tables of verbs; plain lines go through `output`."""

from typing import Any

import rich.table
from rich.console import Console
from rich.text import Text

from trainmover.escaping import escape, one_line

_WIDTH = 1000


class Terminal(Console):
    """A console whose styles are its own: those in a text are shown, not obeyed. What stands in
    brackets or between colons is what somebody has written, too, not how it is to look."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, *args: Any, **options: Any) -> Text:
        return super().render_str(escape(text), *args, **options)

    def print_line(self, text: str, style: str | None = None) -> None:
        """Print one line, whatever is in it."""
        self.print(one_line(text), style=style)


class Table(rich.table.Table):
    """A table whose rows are one line each."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(one_line(cell) for cell in cells), **options)


def whole_lines() -> Terminal:
    """Lines are as long as what they say: a terminal wraps them, and nothing is cut in a pipe."""
    return Terminal(soft_wrap=True, width=_WIDTH)
