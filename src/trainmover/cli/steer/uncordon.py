"""`trainmover uncordon m2`: it may take ranks again."""

import argparse

from trainmover.cli.ask import ask, parser_of

SUMMARY = "let a cordoned machine take ranks again"


def parser() -> argparse.ArgumentParser:
    return parser_of("uncordon", SUMMARY, reason="kept in the events")


def main(argv: list[str]) -> int:
    """0: done. 1: refused; the job trains on as it was."""
    return ask("uncordon", parser().parse_args(argv))
