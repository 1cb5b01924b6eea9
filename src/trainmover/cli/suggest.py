# SPDX-License-Identifier: Apache-2.0
"""Complaints about a command line, in three lines; did you mean ...? Light: it comes first."""

import argparse
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn

from trainmover.errors import UserError

_UNKNOWN = "unrecognized arguments: "
_VALUELESS = re.compile(r"argument (?:\S+/)*(--\S+): expected one argument")


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return a sentence, or "" if nothing known is like it.

    >>> did_you_mean("--machine=3", ["--machines", "--json"])
    'Did you mean --machines?'
    >>> did_you_mean("--foo", ["--machines"])
    ''
    """
    alike = get_close_matches(given.partition("=")[0], list(known), n=1, cutoff=0.7)
    return f"Did you mean {alike[0]}?" if alike else ""


def see_help(parser: argparse.ArgumentParser, given: str) -> str:
    """Return what to do about an argument that `parser` does not know."""
    meant = did_you_mean(given, parser._option_string_actions)
    return f"{meant} See {parser.prog} --help".lstrip()


def complain_in_three_lines(parser: argparse.ArgumentParser) -> None:
    """Have `parser` raise a UserError instead of printing its usage and leaving."""

    def error(message: str) -> NoReturn:
        unknown = message.removeprefix(_UNKNOWN) if message.startswith(_UNKNOWN) else ""
        do = see_help(parser, unknown)
        if flag := _VALUELESS.fullmatch(message):
            do = f"Give its value; one that begins with a dash so: {flag[1]}=VALUE. {do}"
        raise UserError(f"{message[:1].upper()}{message[1:]}.", means="Nothing was done.", do=do)

    parser.error = error  # type: ignore[method-assign]
