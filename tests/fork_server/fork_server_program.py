"""Born with a fork server of its own: has a child from it, tells of it, and waits."""

import os
import signal
import sys

from trainmover.fork_server import Birth, ForkServer
from trainmover.lifeline import adopt_orphans


def main() -> None:
    adopt_orphans()
    print(f"parent {os.getppid()}", flush=True)
    fork_server = ForkServer.inherited(int(sys.argv[sys.argv.index("--fork-server") + 1]))
    birth = Birth(
        module="fork_server_module",
        title="born of the program",
        arguments=["wait"],
        environment=dict(os.environ),
        variables=["PIPE"],
    )
    (child,) = fork_server.bear(birth, [0, 1, 2, 1])
    with open(f"/proc/{child}/stat") as stat:
        parent = stat.read().rpartition(")")[2].split()[1]
    print(f"born here {parent}\n{child}", flush=True)
    signal.pause()
