# SPDX-License-Identifier: Apache-2.0
"""Long lists in a sentence. Pure."""

from collections.abc import Sequence


def some_of(names: Sequence[str], most: int, rest: str = "others") -> str:
    """Return the first `most` names, and how many there are besides.

    >>> some_of(["m1", "m2"], 2), some_of(["m1", "m2", "m3", "m4"], 2)
    ('m1, m2', 'm1, m2 and 2 others')
    """
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} {rest}" if len(names) > most else shown
