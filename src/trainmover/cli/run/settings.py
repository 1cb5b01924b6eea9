# SPDX-License-Identifier: Apache-2.0
"""Flags of `trainmover run` that stand in a file or in the environment; later ones count.

    trainmover.toml      of the folder, or the file of --config: `standbys = 2`, `no-watch = true`
    TRAINMOVER_STANDBYS  and so on, for trainmover's own flags
    the command line

They are put before the command line's, as if they had been typed.
"""

import argparse
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trainmover.cli.run.parser import known_flags, ours
from trainmover.cli.suggest import did_you_mean
from trainmover.errors import UserError

FILE = "trainmover.toml"
PREFIX = "TRAINMOVER_"
NOT_IN_ENVIRONMENT = frozenset(
    {"--comm", "--config", "--json", "--run-id", "--token-file", "--worker-program"}
    | {"--tls", "--tls-ca", "--tls-cert", "--tls-key"}
)
"""Whose variables mean something else, or would reach the script's own processes."""
_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


Flags = dict[str, argparse.Action]
"""By long name with dashes."""


class Setting(NamedTuple):
    """A flag, its value as it would be typed (None: it takes none), and where it stands."""

    flag: str
    value: str | None
    source: str

    @property
    def typed(self) -> str:
        """Return it as one word of a command line."""
        return self.flag if self.value is None else f"{self.flag}={self.value}"


def with_settings(argv: list[str]) -> list[str]:
    """Return a command line behind what stands in file and environment. Raises UserError."""
    return [*(one.typed for one in settings(argv, os.environ)), *argv]


def settings(argv: list[str], environment: Mapping[str, str]) -> list[Setting]:
    """Return what stands in file and environment, the weaker first. Raises UserError."""
    known = known_flags()
    given, _ = known.parse_known_args(argv)
    path = given.config or (Path(FILE) if Path(FILE).is_file() else None)
    flags = _by_flag(known)
    of_file = [] if path is None else [*_of_file(path, flags)]
    own = {flag: one for flag, one in flags.items() if one.dest in ours(known)}
    return [*of_file, *_of_environment(environment, own)]


def _of_file(path: Path, flags: Flags) -> Iterator[Setting]:
    for name, value in _read(path).items():
        flag = f"--{name.replace('_', '-')}"
        if flag not in flags or flag in ("--config", "--help"):
            raise UserError(
                f"{path} has {name!r}, and trainmover run has no such flag.",
                means="Nothing was started.",
                do=f"{did_you_mean(flag, flags)} See trainmover run --help".lstrip(),
            )
        if flags[flag].nargs == 0:
            if type(value) is not bool:
                raise _other(path, name, "true or false")
            if value:
                yield Setting(flag, None, str(path))
        elif type(value) in (str, int, float):
            yield Setting(flag, str(value), str(path))
        else:
            raise _other(path, name, "a text or a number")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        why = error.strerror or str(error)
        raise _unreadable(path, f"cannot be read: {why}") from error
    except ValueError as error:  # Not TOML, or not text.
        raise _unreadable(path, f"is no TOML: {error}") from error


def _unreadable(path: Path, why: str) -> UserError:
    return UserError(
        f"{path} {why}.",
        means="Nothing was started.",
        do="Mend it: a flag a line, as in standbys = 2",
    )


def _other(path: Path, name: str, wanted: str) -> UserError:
    return UserError(
        f"{name!r} in {path} must be {wanted}.",
        means="Nothing was started.",
        do='Write it as in standbys = 2, journal = "run.db" or no-watch = true',
    )


def _of_environment(environment: Mapping[str, str], own: Flags) -> Iterator[Setting]:
    for flag, action in own.items():
        variable = PREFIX + flag.removeprefix("--").replace("-", "_").upper()
        if variable not in environment or flag in NOT_IN_ENVIRONMENT:
            continue
        value = environment[variable]
        if action.nargs != 0:
            yield Setting(flag, value, variable)
        elif value.lower() in _ON:
            yield Setting(flag, None, variable)
        elif value.lower() not in _OFF:
            raise UserError(
                f"{variable} is {value!r}.",
                means="Nothing was started.",
                do=f"Set it to 1, or leave it away: {flag} takes no value.",
            )


def _by_flag(known: argparse.ArgumentParser) -> Flags:
    """Return each flag that a parser knows."""
    return {
        option: action
        for action in known._actions
        for option in action.option_strings
        if option.startswith("--") and "_" not in option
    }
