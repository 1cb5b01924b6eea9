"""`trainmover stop`: the job ends in order, as by SIGTERM; waits until its run is over."""

import argparse
import json
import time

from trainmover.cli.client import Client
from trainmover.cli.options import add_which_run, parser_for, which_run
from trainmover.launch.runs import lives

SUMMARY = "end a live run in order, with one more checkpoint where some are written"
_LOOK_S = 0.05


def parser() -> argparse.ArgumentParser:
    parser = parser_for("stop", SUMMARY)
    parser.add_argument("--reason", default="", metavar="TEXT", help="shown where the run is")
    add_which_run(parser)
    return parser


def main(argv: list[str]) -> int:
    """0: the run is over."""
    options = parser().parse_args(argv)
    run = which_run(options)
    Client(run).ask("stop", {"reason": options.reason})
    while lives(run):
        time.sleep(_LOOK_S)
    text = f"Run {run.run_id} has ended."
    print(json.dumps({"ok": True, "text": text}) if options.json else text)
    return 0
