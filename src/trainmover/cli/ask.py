"""What `move` and `kill` share: name a machine, wait, say what came of it."""

import argparse
import json

from trainmover.cli.client import Client
from trainmover.cli.options import add_which_run, parser_for, which_run


def parser_of(verb: str, summary: str) -> argparse.ArgumentParser:
    """For one that names a machine."""
    parser = parser_for(verb, summary)
    parser.add_argument("machine", help="its name, as trainmover status shows it")
    add_which_run(parser)
    return parser


def ask(verb: str, options: argparse.Namespace, **more: str) -> int:
    """Exit status 0 if it was done, 1 if it was refused or failed."""
    answer = Client(which_run(options)).ask(verb, {"machine": options.machine, **more})
    print(json.dumps(answer) if options.json else answer["text"])
    return 0 if answer["ok"] else 1
