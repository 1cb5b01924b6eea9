# SPDX-License-Identifier: Apache-2.0
"""Print plain lines of verbs: all of them go through `escape`, here and in `console` alone.
The script's own lines are the user's, and go their own way (`run/screen.py`).
"""

import json
from typing import Any, TextIO

from trainmover.escaping import escape, one_line


def say(text: str = "", *, to: TextIO | None = None, flush: bool = False) -> None:
    """Print for people. to: stdout, if none is given."""
    print(escape(text), file=to, flush=flush)


def say_json(value: Any, *, flush: bool = False) -> None:
    """Print for programs, on one line of stdout."""
    print(json_line(value), flush=flush)


def say_either(value: Any, text: str, *, as_json: bool, flush: bool = False) -> None:
    """Print the value for programs, or the text for people."""
    if as_json:
        say_json(value, flush=flush)
    else:
        say(text, flush=flush)


def json_line(value: Any) -> str:
    """JSON in which every character is one that can be seen.

    >>> json_line("\\x1b\\x7f\\u202e")
    '"\\\\u001b\\\\u007f\\\\u202e"'
    """
    return json.dumps(value).replace("\x7f", "\\u007f")


def redraw(text: str, to: TextIO) -> None:
    """Write over the line that a terminal shows last."""
    to.write(f"\r\x1b[K{one_line(text)}")
    to.flush()
