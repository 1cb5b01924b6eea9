# SPDX-License-Identifier: Apache-2.0
"""Machines, ranks and ways between machines, slowed in turn: `python -m ... EPISODES SEED`.

In a network of its own, so that ways can be slowed; prints what has come of it as JSON. A part of
`bench.straggler`.
"""

import subprocess
import sys

import msgspec

from bench.straggler.arms import Ran, of_kinds, play
from bench.straggler.hosts import Hosts

MACHINES = 4


def played(episodes: int, seed: int) -> Ran:
    """In a process of its own."""
    command = ["unshare", "--net", sys.executable, "-m", __spec__.name, str(episodes), str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Ran)


def main() -> None:
    episodes, seed = map(int, sys.argv[1:])
    with Hosts(MACHINES) as hosts:
        ran = play(of_kinds(episodes, seed, hosts), policy="watch", standbys=0, hosts=hosts)
    sys.stdout.write(msgspec.json.encode(ran).decode() + "\n")


if __name__ == "__main__":
    main()
