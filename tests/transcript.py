"""Stories in plain text: what something is told, line by line, and beside it all that follows.

    == A title, and below it what the story shows ==
    it: running(standbys=1)         what the story is of, in Python
    > lost("m2", at_us=100)         what happens to it
      m2: fenced                    what follows: what is done or answered,
      change: stage=drain           and every field of it that has another value now

Lines that begin with two blanks are made, and all others are somebody's. Fields that have their
default are not shown. When a change is meant, `pytest --rewrite` with the folder of such stories
writes them anew; what differs then is what is to be looked at.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

WIDTH = 110
GONE = object()

Happens = Callable[[Any, str], tuple[Any, Iterable[str]]]
"""What `it` is after a line, and what was done meanwhile."""
Where = tuple[str, ...]


def titles(folder: Path) -> list[tuple[Path, str]]:
    """All stories in the files of a folder."""
    files = sorted(folder.glob("*.txt"))
    return [(file, title) for file in files for title in stories(file.read_text())]


def stories(text: str) -> dict[str, str]:
    """Title -> the whole story."""
    parts = re.split(r"^(?=== )", text, flags=re.MULTILINE)
    return {part.partition(" ==\n")[0].removeprefix("== "): part for part in parts if part.strip()}


def check(file: Path, title: str, words: dict[str, Any], happens: Happens, *, anew: bool) -> None:
    """What follows is what is written; anew: from now on."""
    story = stories(file.read_text())[title].rstrip("\n") + "\n"
    again = told_again(story, words, happens)
    if anew:
        file.write_text(file.read_text().replace(story, again))
    else:
        assert again == story


def told_again(story: str, words: dict[str, Any], happens: Happens) -> str:
    """The same story with what follows today."""
    lines: list[str] = []
    it: Any = None
    for line in story.rstrip("\n").split("\n"):
        if line.startswith("  "):
            continue
        lines.append(line)
        if line.startswith("it: "):
            it = eval(line.removeprefix("it: "), words)
        elif line.startswith("> "):
            it, follows = happens(it, line.removeprefix("> "))
            lines += map(_wrapped, follows)
    return "\n".join(lines) + "\n"


def _wrapped(line: str) -> str:
    return textwrap.fill(
        line, WIDTH, initial_indent="  ", subsequent_indent="      ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


# --- what is another value ------------------------------------------------------------------------


def changes(
    before: Any, after: Any, *, each: Set[str] = frozenset(), but: Set[str] = frozenset()
) -> Iterator[str]:
    """A line for every field with another value, and one for those that consist of nothing.

    each: of these every one they hold is a line of its own; but: of these nothing is said
    """

    def whose(difference: tuple[Where, str]) -> Where:
        path, _ = difference
        return path[: 2 if path[0] in each else len(path) > 1]

    differences = (one for one in _differences(before, after, ()) if one[0][0] not in but)
    for owner, group in groupby(differences, key=whose):
        its = [(".".join(path[len(owner) :]), value) for path, value in group]
        words = ", ".join(f"{name}={value}" if name else value for name, value in its)
        yield f"{'.'.join(owner) or 'it'}: {words}"


def _differences(before: Any, after: Any, path: Where) -> Iterator[tuple[Where, str]]:
    """Every place below a value where another one stands."""
    if before is after or before == after:
        return
    old, new = _parts(before), _parts(after)
    if old is None or new is None or type(before) is not type(after):
        yield path, "gone" if after is GONE else shown(after)
        return
    for name in [*old, *(name for name in new if name not in old)]:
        yield from _differences(old.get(name, GONE), new.get(name, GONE), (*path, str(name)))


def _parts(value: Any) -> dict[Any, Any] | None:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): its for key, its in value.items()}
    if isinstance(value, tuple | list) and any(map(is_dataclass, value)):
        return dict(enumerate(value))
    return None


def _key(key: Any) -> str:
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)


# --- values in short ------------------------------------------------------------------------------


def in_a_line(text: str) -> str:
    return " / ".join(text.split("\n"))


SHORT: dict[type, Callable[[Any], str]] = {}
"""How values of some types are shown, where the fields of one would hide what is told."""


def shown(value: Any) -> str:
    """Fields that have their default are left out."""
    if type(value) in SHORT:
        return SHORT[type(value)](value)
    match value:
        case Enum():
            return str(value.value)
        case str():
            return repr(in_a_line(value))
        case float():
            return f"{value:.6g}"
        case Mapping():
            return "{" + ", ".join(f"{_key(k)}: {shown(its)}" for k, its in value.items()) + "}"
        case Set():
            return "{" + ", ".join(sorted(map(shown, value))) + "}"
        case msgspec.Struct():
            its = msgspec.structs.fields(value)
            return _named(value, [(one.name, one.default, one.default_factory) for one in its])
        case _ if is_dataclass(value):
            known = fields(value)
            return _named(value, [(one.name, one.default, one.default_factory) for one in known])
        case _ if isinstance(value, Iterable) and not isinstance(value, bytes):
            return "[" + ", ".join(filter(None, map(shown, value))) + "]"
        case _:
            return str(value)


def _named(value: Any, of: list[tuple[str, Any, Any]]) -> str:
    its = []
    for name, default, factory in of:
        has_none = factory is MISSING or factory is msgspec.NODEFAULT
        if getattr(value, name) != (default if has_none else factory()):
            its.append(f"{name}={shown(getattr(value, name))}")
    return f"{type(value).__name__}({', '.join(its)})"
