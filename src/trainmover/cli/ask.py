"""What `move` and `kill` share: name a machine, wait, say what came of it."""

import json

from trainmover.cli.client import Client
from trainmover.cli.options import add_which_run, parser_for, which_run


def ask(verb: str, summary: str, argv: list[str]) -> int:
    """Exit status 0 if it was done, 1 if it was refused or failed."""
    parser = parser_for(verb, summary)
    parser.add_argument("machine", help="its name, as trainmover status shows it")
    add_which_run(parser)
    options = parser.parse_args(argv)
    answer = Client(which_run(options)).ask(verb, options.machine)
    print(json.dumps(answer) if options.json else answer["text"])
    return 0 if answer["ok"] else 1
