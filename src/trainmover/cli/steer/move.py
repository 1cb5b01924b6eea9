"""`trainmover move m2`: its ranks go to a standby; waits until the job trains there."""

import argparse

from trainmover.cli.ask import ask, parser_of

SUMMARY = "move a machine's ranks to a standby while the job runs"


def parser() -> argparse.ArgumentParser:
    return parser_of("move", SUMMARY, reason="kept with the incident")


def main(argv: list[str]) -> int:
    """0: done. 1: refused or cancelled; the job trains on as it was."""
    return ask("move", parser().parse_args(argv))
