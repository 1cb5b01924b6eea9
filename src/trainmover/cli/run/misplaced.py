# SPDX-License-Identifier: Apache-2.0
"""Flags of ours that stand after the script, and so go to it: the commonest slip."""

from collections.abc import Sequence
from pathlib import Path

from trainmover.cli.run.parser import own_flags


def misplaced_text(script: str, arguments: Sequence[str]) -> str:
    """Return a line that says so, with the right order; "" if the script knows these flags, or none
    is there."""
    text = _text_of(script)
    flags = own_flags()
    found = [one for one in arguments if one.partition("=")[0] in flags]
    ours = [one for one in found if not _is_known(one.partition("=")[0], text)]
    if not ours:
        return ""
    moved = " ".join(_with_values(arguments, ours, flags))
    return (
        f"what comes after {script} goes to the script: {', '.join(ours)}. "
        f"If trainmover is meant: trainmover run {moved} {script}"
    )


def _text_of(script: str) -> str | None:
    try:
        return Path(script).read_text(errors="replace")
    except OSError:
        return None


def _is_known(flag: str, text: str | None) -> bool:
    """Tell whether the script may read the flag. None: the script is a module, or cannot be
    read."""
    name = flag.removeprefix("--")
    return text is None or name in text or name.replace("-", "_") in text


def _with_values(
    arguments: Sequence[str], ours: Sequence[str], flags: dict[str, bool]
) -> list[str]:
    """Return the flags as they were given, each with its value."""
    taken: list[str] = []
    for at, one in enumerate(arguments):
        if one in ours:
            taken += arguments[at : at + 1 + (flags[one.partition("=")[0]] and "=" not in one)]
    return taken
