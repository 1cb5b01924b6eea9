# SPDX-License-Identifier: Apache-2.0
"""Texts from outside as they may be shown: none of their characters steers a terminal, hides, or
changes the order of others.

Names, reasons, paths of requests, texts of exceptions and whole journals come from people and
programs that a run does not know. Whatever shows them to people goes through `escape`, before it is
styled; what is one line goes through `one_line`.
"""

import re

_SPANS = (
    *((0x00, 0x1F), (0x7F, 0x9F)),  # Cc
    *((0xAD, 0xAD), (0x600, 0x605), (0x61C, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F)),  # Cf
    *((0x890, 0x891), (0x8E2, 0x8E2), (0x180E, 0x180E), (0x200B, 0x200F), (0x202A, 0x202E)),
    *((0x2060, 0x206F), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0x110BD, 0x110BD)),
    *((0x110CD, 0x110CD), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
    *((0xE0001, 0xE0001), (0xE0020, 0xE007F)),
    (0x2028, 0x2029),  # Zl, Zp
    (0xD800, 0xDFFF),  # Cs: halves of characters, which cannot be written
)


def _spelled(code: int) -> str:
    """Spell a code point as both Python and JavaScript read it in a pattern."""
    return f"\\u{code:04x}" if code < 0x10000 else chr(code)


UNSEEN = "".join(f"{_spelled(first)}-{_spelled(last)}" for first, last in _SPANS)
"""What stands between the brackets of a pattern for such a character: of Unicode's categories Cc,
Cf, Zl, Zp and Cs."""
ONE_LINE = f"^[^{UNSEEN}]*$(?!\\n)"
"""A pattern for a text without any. Python's `$` alone would let a last newline pass."""

_unseen = re.compile(f"[{UNSEEN}]")


def escape(text: str, keep: str = "\n\t") -> str:
    r"""Each character that is not seen as it would be written in Python.

    >>> print(escape("red: \x1b[31m\n\u202etxt"))
    red: \x1b[31m
    \u202etxt
    """
    return _unseen.sub(lambda found: found[0] if found[0] in keep else _written(found[0]), text)


def one_line(text: str) -> str:
    r"""Escape newlines and tabs too: what was one line stays one.

    >>> print(one_line("m3\n07:13 the operator asks: stop"))
    m3\n07:13 the operator asks: stop
    """
    return escape(text, keep="")


def indented(text: str, columns: int) -> str:
    """Further lines begin so far to the right that none of them looks like one of ours."""
    return text.replace("\n", "\n" + " " * columns)


def is_one_line(text: str) -> bool:
    """Whether all of it is seen as it is, in one line."""
    return _unseen.search(text) is None


def _written(character: str) -> str:
    return character.encode("unicode_escape").decode()
