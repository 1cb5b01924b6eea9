# SPDX-License-Identifier: Apache-2.0
"""`trainmover stop`: the job ends in order, as by SIGTERM; waits until its run is over."""

import argparse
import time

from trainmover.cli.client import Client
from trainmover.cli.options import which_run
from trainmover.cli.output import say_either
from trainmover.launch.runs import lives

_LOOK_S = 0.05


def main(options: argparse.Namespace) -> int:
    """0: the run is over."""
    run = which_run(options)
    Client(run).ask("stop", {"reason": options.reason})
    while lives(run):
        time.sleep(_LOOK_S)
    text = f"Run {run.run_id} has ended."
    say_either({"ok": True, "text": text}, text, as_json=options.json)
    return 0
