"""`trainmover move m2`, `drain`, `cordon`, `uncordon`, `health`, `kill`: asked for, and waited for.

move      its ranks go to a standby
drain     it is cordoned, then its ranks go; several machines as one change
cordon    it takes no ranks from others until it is uncordoned
uncordon  it may again
health    what it can do is measured: memory, disk, processor, network, GPUs
kill      a drill: its agent and workers die by SIGKILL
"""

import argparse
import json

from trainmover.cli.client import Client
from trainmover.cli.options import which_run
from trainmover.cli.steer.spans import seconds


def main(options: argparse.Namespace) -> int:
    """0: it was done, and the job trains. 1: refused or cancelled; it trains on as it was."""
    asked = {
        name: getattr(options, name) for name in ("machine", "also", "reason") if name in options
    }
    if getattr(options, "deadline", ""):
        asked["left_s"] = seconds(options.deadline)
    answer = Client(which_run(options)).ask(options.verb, asked)
    print(json.dumps(answer) if options.json else answer["text"])
    return 0 if answer["ok"] else 1
