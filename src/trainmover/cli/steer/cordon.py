"""`trainmover cordon m2`: it takes no ranks from others until it is uncordoned."""

import argparse

from trainmover.cli.ask import ask, parser_of

SUMMARY = "let a machine take no ranks until it is uncordoned"


def parser() -> argparse.ArgumentParser:
    return parser_of("cordon", SUMMARY, reason="kept, and shown in status")


def main(argv: list[str]) -> int:
    """0: done. 1: refused; the job trains on as it was."""
    return ask("cordon", parser().parse_args(argv))
