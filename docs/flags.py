# SPDX-License-Identifier: Apache-2.0
"""The arguments and flags of each command, from its own parser, as a table for its page."""

import argparse

from trainmover.cli.verbs import parser_of

COMMON = {"--help", "--run-id", "--run-dir", "--json"}
"""What nearly all have is said once, above all tables."""


def table_of_flags(verb: str) -> str:
    """Arguments and flags of a command but those that nearly all have."""
    hidden = COMMON if verb != "controller" else {"--help"}
    rows = []
    for action in parser_of(verb)._actions:
        if action.help == argparse.SUPPRESS or hidden & set(action.option_strings):
            continue
        takes = str(action.metavar or (action.dest.upper() if action.nargs != 0 else ""))
        shown = [f"{name} {takes}".strip() for name in action.option_strings] or [takes]
        rows.append(f"| {' or '.join(f'`{one}`' for one in shown)} | {action.help} |")
    return "\n".join(["| argument | meaning |", "|---|---|", *rows]) if rows else ""
