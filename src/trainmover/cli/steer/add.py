# SPDX-License-Identifier: Apache-2.0
"""`trainmover add`: one more machine, on this host, joins a live run as a standby."""

import argparse
import time

from trainmover.cli.client import Client
from trainmover.cli.options import which_run
from trainmover.cli.output import say_either
from trainmover.errors import JobFailed
from trainmover.launch.late import LateMachine, start_late

_LOOK_S = 0.05


def main(options: argparse.Namespace) -> int:
    """0: the machine has joined. It warms up by itself, and lives as long as the run."""
    run = which_run(options)
    client = Client(run)
    names = [machine["id"] for machine in client.status()["machines"]]
    machine = start_late(run, names, options.machine, rack=options.rack)
    _wait_until_joined(client, machine)
    text = f"{machine.name} joined as a standby; it warms up (trainmover standbys)."
    say_either({"machine": machine.name, "pid": machine.pid}, text, as_json=options.json)
    return 0


def _wait_until_joined(client: Client, machine: LateMachine) -> None:
    """Raises JobFailed with what its agent said, if that ends first."""
    while all(known["id"] != machine.name for known in client.status()["machines"]):
        if not machine.lives():
            said = machine.last_words()
            raise JobFailed(
                f"{machine.name} did not join: its agent has ended.",
                means="The job did not notice.",
                do=f"It said: {said}" if said else "Try again, or see trainmover events.",
            )
        time.sleep(_LOOK_S)
