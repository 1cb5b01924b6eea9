"""Option parsing that every verb shares: complaints in three lines, and which run is meant."""

import argparse
from pathlib import Path

from trainmover.cli.examples import examples_of
from trainmover.cli.suggest import complain_in_three_lines
from trainmover.launch.runs import Run, find_run


def parser_for(verb: str, summary: str) -> argparse.ArgumentParser:
    """A parser whose complaints are UserErrors, and whose help ends with examples."""
    parser = argparse.ArgumentParser(
        prog=f"trainmover {verb}",
        description=f"{summary}.",
        epilog=examples_of(verb),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    complain_in_three_lines(parser)
    return parser


def add_which_run(parser: argparse.ArgumentParser) -> None:
    """--run-id, --run-dir and --json."""
    parser.add_argument("--run-id", default="", metavar="ID", help="which run, if several live")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="of a run started with it")
    parser.add_argument("--json", action="store_true", help="JSON for programs")


def which_run(options: argparse.Namespace) -> Run:
    """The live run meant. Raises UserError."""
    return find_run(options.run_id, options.run_dir)
