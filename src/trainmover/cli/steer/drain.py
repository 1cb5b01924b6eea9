"""`trainmover drain m2`: cordons it, then moves its ranks; waits until the job trains there."""

import argparse

from trainmover.cli.ask import ask, parser_of

SUMMARY = "cordon a machine, and move its ranks to a standby"


def parser() -> argparse.ArgumentParser:
    parser = parser_of("drain", SUMMARY)
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept, and shown in status")
    return parser


def main(argv: list[str]) -> int:
    """0: done. 1: refused; the job trains on as it was."""
    options = parser().parse_args(argv)
    return ask("drain", options, reason=options.reason)
