"""`trainmover move m2`, `drain`, `cordon`, `uncordon`, `kill`: asked for, and waited for.

move      its ranks go to a standby
drain     it is cordoned, then its ranks go
cordon    it takes no ranks from others until it is uncordoned
uncordon  it may again
kill      a drill: its agent and workers die by SIGKILL
"""

import argparse
import json

from trainmover.cli.client import Client
from trainmover.cli.options import which_run


def main(options: argparse.Namespace) -> int:
    """0: it was done, and the job trains. 1: refused or cancelled; it trains on as it was."""
    asked = {name: getattr(options, name) for name in ("machine", "reason") if name in options}
    answer = Client(which_run(options)).ask(options.verb, asked)
    print(json.dumps(answer) if options.json else answer["text"])
    return 0 if answer["ok"] else 1
