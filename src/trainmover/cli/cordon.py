"""`trainmover cordon m2`: it takes no ranks from others until it is uncordoned."""

from trainmover.cli.ask import ask, parser_of

SUMMARY = "let a machine take no ranks until it is uncordoned"


def main(argv: list[str]) -> int:
    """0: done. 1: refused; the job trains on as it was."""
    parser = parser_of("cordon", SUMMARY)
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept, and shown in status")
    options = parser.parse_args(argv)
    return ask("cordon", options, reason=options.reason)
