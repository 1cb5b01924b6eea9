"""Option parsing that every verb shares: complaints in three lines, and which run is meant."""

import argparse
from pathlib import Path
from typing import NoReturn

from trainmover.errors import UserError
from trainmover.launch.runs import Run, find_run


def parser_for(verb: str, summary: str) -> argparse.ArgumentParser:
    """A parser whose complaints are UserErrors."""
    parser = argparse.ArgumentParser(prog=f"trainmover {verb}", description=f"{summary}.")
    complain_in_three_lines(parser)
    return parser


def complain_in_three_lines(parser: argparse.ArgumentParser) -> None:
    """Have `parser` raise a UserError instead of printing its usage and leaving."""

    def error(message: str) -> NoReturn:
        raise UserError(
            f"{message[:1].upper()}{message[1:]}.",
            means="Nothing was done.",
            do=f"See {parser.prog} --help",
        )

    parser.error = error  # type: ignore[method-assign]


def add_which_run(parser: argparse.ArgumentParser) -> None:
    """--run-id, --run-dir and --json."""
    parser.add_argument("--run-id", default="", metavar="ID", help="which run, if several live")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="of a run started with it")
    parser.add_argument("--json", action="store_true", help="JSON for programs")


def which_run(options: argparse.Namespace) -> Run:
    """The live run meant. Raises UserError."""
    return find_run(options.run_id, options.run_dir)
