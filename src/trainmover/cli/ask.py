"""What commands about one machine share: name it, say why, wait, say what came of it."""

import argparse
import json

from trainmover.cli.client import Client
from trainmover.cli.options import add_which_run, parser_for, which_run


def parser_of(verb: str, summary: str, reason: str = "") -> argparse.ArgumentParser:
    """reason: what becomes of one that is given; "": none is taken."""
    parser = parser_for(verb, summary)
    parser.add_argument("machine", help="its name, as trainmover status shows it")
    if reason:
        parser.add_argument("--reason", default="", metavar="TEXT", help=reason)
    add_which_run(parser)
    return parser


def ask(verb: str, options: argparse.Namespace) -> int:
    """Exit status 0 if it was done, 1 if it was refused or failed."""
    asked = {name: getattr(options, name) for name in ("machine", "reason") if name in options}
    answer = Client(which_run(options)).ask(verb, asked)
    print(json.dumps(answer) if options.json else answer["text"])
    return 0 if answer["ok"] else 1
