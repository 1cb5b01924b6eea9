"""`trainmover token`: what a client of the API shows; the viewer's may look and change nothing."""

import argparse
import json
from pathlib import Path

from trainmover.cli.options import which_run
from trainmover.server.http.roles import viewer_token
from trainmover.token_file import read_token


def main(options: argparse.Namespace) -> int:
    """0: printed."""
    token = read_token(Path(which_run(options).token_file))
    role = "viewer" if options.viewer else "operator"
    text = (viewer_token(token) if options.viewer else token).decode()
    print(json.dumps({"role": role, "token": text}) if options.json else text)
    return 0
