"""`trainmover cordon m2`: it takes no ranks from others until it is uncordoned."""

import argparse

from trainmover.cli.ask import ask, parser_of

SUMMARY = "let a machine take no ranks until it is uncordoned"


def parser() -> argparse.ArgumentParser:
    parser = parser_of("cordon", SUMMARY)
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept, and shown in status")
    return parser


def main(argv: list[str]) -> int:
    """0: done. 1: refused; the job trains on as it was."""
    options = parser().parse_args(argv)
    return ask("cordon", options, reason=options.reason)
