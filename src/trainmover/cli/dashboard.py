# SPDX-License-Identifier: Apache-2.0
"""`trainmover dashboard`: open the page of a live run, with a code that is good once."""

import argparse
import webbrowser

from trainmover.cli.client import Client
from trainmover.cli.options import which_run
from trainmover.cli.output import say, say_json


def main(options: argparse.Namespace) -> int:
    """0: it was opened, or its address was printed."""
    run = which_run(options)
    code = Client(run, viewer=options.viewer).code()
    url = f"{run.api_url}/#code={code['code']}"
    opened = not (options.no_open or options.json) and webbrowser.open(url)
    if options.json:
        say_json({"url": url, "expires_s": code["expires_s"]})
    elif opened:
        say(f"The page of run {run.run_id} is open: {run.api_url}")
    else:
        say(f"{url}\n(good once, for {code['expires_s']:.0f} s)")
    return 0
