"""Born with a nursery of its own: has a child from it, tells of it, and waits."""

import os
import signal
import sys

from trainmover.lifeline import adopt_orphans
from trainmover.nursery import Birth, Nursery


def main() -> None:
    adopt_orphans()
    print(f"parent {os.getppid()}", flush=True)
    nursery = Nursery.inherited(int(sys.argv[sys.argv.index("--nursery") + 1]))
    birth = Birth(
        module="nursery_module",
        title="born of the program",
        arguments=["wait"],
        environment=dict(os.environ),
        variables=["PIPE"],
    )
    (child,) = nursery.bear(birth, [0, 1, 2, 1])
    with open(f"/proc/{child}/stat") as stat:
        parent = stat.read().rpartition(")")[2].split()[1]
    print(f"born here {parent}\n{child}", flush=True)
    signal.pause()
