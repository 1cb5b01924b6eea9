"""`trainmover kill m2`: a drill. The machine's agent and workers die by SIGKILL."""

import argparse

from trainmover.cli.ask import ask, parser_of

SUMMARY = "let a machine die, to see the job recover"


def parser() -> argparse.ArgumentParser:
    return parser_of("kill", SUMMARY)


def main(argv: list[str]) -> int:
    """0: it was told to die."""
    return ask("kill", parser().parse_args(argv))
