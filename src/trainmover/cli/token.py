# SPDX-License-Identifier: Apache-2.0
"""`trainmover token`: what a client of the API shows; the viewer's may look and change nothing."""

import argparse
from pathlib import Path

from trainmover.cli.options import which_run
from trainmover.cli.output import say_either
from trainmover.server.http.roles import viewer_token
from trainmover.token_file import read_token


def main(options: argparse.Namespace) -> int:
    """0: printed."""
    token = read_token(Path(which_run(options).token_file))
    role = "viewer" if options.viewer else "operator"
    text = (viewer_token(token) if options.viewer else token).decode()
    say_either({"role": role, "token": text}, text, as_json=options.json)
    return 0
