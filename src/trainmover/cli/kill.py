"""`trainmover kill m2`: a drill. The machine's agent and workers die by SIGKILL."""

from trainmover.cli.ask import ask, parser_of

SUMMARY = "let a machine die, to see the job recover"


def main(argv: list[str]) -> int:
    """0: it was told to die."""
    return ask("kill", parser_of("kill", SUMMARY).parse_args(argv))
