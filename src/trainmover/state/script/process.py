# SPDX-License-Identifier: Apache-2.0
"""What a script sets for its whole process while it trains: variables of the environment, and what
torch and numpy are set to. Nobody else's process has it."""

import os
from collections.abc import Mapping
from typing import Any

from trainmover.state.script.code.grammar import names_machine
from trainmover.state.script.code.in_force import IN_FORCE, calls_that_set, set_by
from trainmover.state.script.code.scopes import Source


def settings_of(source: Source, begun: Mapping[str, str]) -> dict[str, Any]:
    """Values by names for people, of what the script may change while it trains.

    begun: the environment as the script began; of names that only the run knows those count that
    are others now
    """
    named = {*source.environ}
    if "*" in named:
        named |= {name for name in {*os.environ, *begun} if os.environ.get(name) != begun.get(name)}
    found: dict[str, Any] = {
        f"os.environ[{name!r}]": os.environ.get(name)
        for name in sorted(named - {"*"})
        if not names_machine(name)
    }
    found |= {text: one.ask() for text, one in set_by(frozenset(source.settings))}
    return found


def put_back(settings: Mapping[str, Any]) -> None:
    """Make them what they were; see `settings_of`."""
    for text, value in settings.items():
        if name := _variable(text):
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        else:
            setting = IN_FORCE[text]
            if setting.ask() != value:
                setting.set_to(value)


def line_of(source: Source, text: str) -> int:
    """Where that is set, in one file; 0: not there."""
    if name := _variable(text):
        return source.environ.get(name) or source.environ.get("*", 0)
    return max(source.settings.get(call, 0) for call in calls_that_set(text))


def _variable(text: str) -> str:
    """Of the environment; "" for a setting."""
    if not text.startswith("os.environ["):
        return ""
    return text.removeprefix("os.environ['").removesuffix("']")
