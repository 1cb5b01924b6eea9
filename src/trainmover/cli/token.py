"""`trainmover token`: what a client of the API shows; the viewer's may look and change nothing."""

import argparse
import json
from pathlib import Path

from trainmover.cli.options import add_which_run, parser_for, which_run
from trainmover.server.http.roles import viewer_token
from trainmover.token_file import read_token

SUMMARY = "print a token for the HTTP API of a live run"


def parser() -> argparse.ArgumentParser:
    parser = parser_for("token", SUMMARY)
    add_which_run(parser)
    parser.add_argument("--viewer", action="store_true", help="one that may look only")
    return parser


def main(argv: list[str]) -> int:
    """0: printed."""
    options = parser().parse_args(argv)
    token = read_token(Path(which_run(options).token_file))
    role = "viewer" if options.viewer else "operator"
    text = (viewer_token(token) if options.viewer else token).decode()
    print(json.dumps({"role": role, "token": text}) if options.json else text)
    return 0
