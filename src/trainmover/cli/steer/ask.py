# SPDX-License-Identifier: Apache-2.0
"""`trainmover move m2`, `drain`, `cordon`, `uncordon`, `health`: asked for, and waited for.

move      its ranks go to a standby
drain     it is cordoned, then its ranks go; several machines as one change
cordon    it takes no ranks from others until it is uncordoned; several one after the other
uncordon  it may again; several too
health    what it can do is measured: memory, disk, processor, network, GPUs
"""

import argparse

from trainmover.cli.client import Client
from trainmover.cli.options import which_run
from trainmover.cli.output import say, say_json
from trainmover.cli.steer.spans import seconds

_ONE_BY_ONE = ("cordon", "uncordon")


def main(options: argparse.Namespace) -> int:
    """0: it was done, and the job trains. 1: refused or cancelled; it trains on as it was."""
    asked = {
        name: getattr(options, name) for name in ("machine", "also", "reason") if name in options
    }
    if getattr(options, "deadline", ""):
        asked["left_s"] = seconds(options.deadline)
    each = [asked]
    if options.verb in _ONE_BY_ONE:
        each = [asked | {"machine": name} for name in (asked["machine"], *asked.pop("also"))]
    client = Client(which_run(options))
    answers = [client.ask(options.verb, one) for one in each]
    if options.json:
        say_json(answers if len(answers) > 1 else answers[0])
    else:
        say("\n".join(answer["text"] for answer in answers))
    return 0 if all(answer["ok"] for answer in answers) else 1
