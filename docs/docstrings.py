# SPDX-License-Identifier: Apache-2.0
"""How our docstrings become pages: a line `name  what it is` becomes an item of a list."""

import re
from typing import Any

from griffe import Extension, Object

NAMED = re.compile(r"^([a-z_]+(?:, [a-z_]+)*) {2,}(\S.*)$")


class Items(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = items(obj.docstring.value)


def items(text: str) -> str:
    """Markdown of a docstring.

    >>> items("Result.\\n\\nsize  in bytes,\\n      of all\\nMore.")
    'Result.\\n\\n- `size`: in bytes,\\n  of all\\n\\nMore.'
    """
    lines: list[str] = []
    within = False
    for line in text.splitlines():
        named = NAMED.match(line)
        if named:
            lines += [] if within or not lines or not lines[-1] else [""]
            lines.append(f"- `{named[1]}`: {named[2]}")
        elif within and line.startswith(" "):
            lines.append("  " + line.strip())
        else:
            lines += [""] if within and line else []
            lines.append(line)
        within = bool(named) or (within and line.startswith(" "))
    return "\n".join(lines)
