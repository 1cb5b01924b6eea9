"""`trainmover drain m2`: cordons it, then moves its ranks; waits until the job trains there."""

import argparse

from trainmover.cli.ask import ask, parser_of

SUMMARY = "cordon a machine, and move its ranks to a standby"


def parser() -> argparse.ArgumentParser:
    return parser_of("drain", SUMMARY, reason="kept, and shown in status")


def main(argv: list[str]) -> int:
    """0: done. 1: refused; the job trains on as it was."""
    return ask("drain", parser().parse_args(argv))
