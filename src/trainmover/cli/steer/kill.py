# SPDX-License-Identifier: Apache-2.0
"""`trainmover kill m2`: a drill; its agent and workers die by SIGKILL. Asks before a job ends."""

import argparse
import sys

from trainmover.cli.client import Client
from trainmover.cli.options import which_run
from trainmover.cli.output import say, say_either


def main(options: argparse.Namespace) -> int:
    """0: it dies. 1: refused, or there is no standby and nobody has agreed that the job ends."""
    client = Client(which_run(options))
    force = options.force or (not options.json and _agreed(client, options.machine))
    answer = client.ask("kill", {"machine": options.machine, "force": force})
    say_either(answer, answer["text"], as_json=options.json)
    return 0 if answer["ok"] else 1


def _agreed(client: Client, machine: str) -> bool:
    """Ask, if the job would end and somebody is there to answer. Nobody has agreed to more."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    loss = client.loss(machine)
    if loss is None or not loss["ends"]:
        return False
    say(f"{loss['text']} Kill {machine}? [y/N]", to=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
