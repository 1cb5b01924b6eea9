# SPDX-License-Identifier: Apache-2.0
"""Terminals and files of another encoding than UTF-8: what it lacks has a plain form."""

import codecs
import sys
from contextlib import suppress

PLAIN = "trainmover-plain"
"""Error handler of encodings."""
_FORMS = {"━": "#", "─": "-", "…": "~", "→": ">", "·": "."}


def plain(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for characters that an encoding lacks.

    >>> "━━── m1…".encode("ascii", PLAIN)
    b'##-- m1~'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_FORMS.get(one, "?") for one in lacking), error.end


codecs.register_error(PLAIN, plain)


def write_plainly() -> None:
    """Let stdout and stderr take every text, whatever their encoding."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # A stream of a test, or one that is closed.
            stream.reconfigure(errors=PLAIN)  # type: ignore[union-attr]
