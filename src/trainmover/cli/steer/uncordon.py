"""`trainmover uncordon m2`: it may take ranks again."""

import argparse

from trainmover.cli.ask import ask, parser_of

SUMMARY = "let a cordoned machine take ranks again"


def parser() -> argparse.ArgumentParser:
    parser = parser_of("uncordon", SUMMARY)
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept in the events")
    return parser


def main(argv: list[str]) -> int:
    """0: done. 1: refused; the job trains on as it was."""
    options = parser().parse_args(argv)
    return ask("uncordon", options, reason=options.reason)
