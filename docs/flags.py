"""The arguments and flags of each command, from its own parser, as a table for its page."""

import argparse
import importlib
from typing import Any
from unittest.mock import patch

from trainmover.cli.main import VERBS

COMMON = {"--help", "--run-id", "--run-dir", "--json"}
"""What nearly all have is said once, above all tables."""


class Asked(Exception):
    """Carries the parser of a command out of it."""


def parser_of(verb: str) -> argparse.ArgumentParser:
    """What `trainmover VERB` parses its arguments with."""

    def give(parser: argparse.ArgumentParser, *_: Any) -> None:
        raise Asked(parser)

    with patch.object(argparse.ArgumentParser, "parse_args", give):
        try:
            importlib.import_module(VERBS[verb]).main([])
        except Asked as asked:
            (parser,) = asked.args
            return parser
    raise LookupError(f"trainmover {verb} parses nothing")


def table_of_flags(verb: str) -> str:
    """Arguments and flags of a command but those that nearly all have."""
    rows = []
    for action in parser_of(verb)._actions:
        everywhere = COMMON if verb != "controller" else {"--help"}
        if action.help == argparse.SUPPRESS or everywhere & set(action.option_strings):
            continue
        value = str(action.metavar or (action.dest.upper() if action.nargs != 0 else ""))
        shown = [f"{name} {value}".strip() for name in action.option_strings] or [value]
        rows.append(f"| {' or '.join(f'`{one}`' for one in shown)} | {action.help} |")
    return "\n".join(["| argument | meaning |", "|---|---|", *rows]) if rows else ""
