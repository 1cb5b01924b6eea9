# SPDX-License-Identifier: Apache-2.0
"""`python -m trainmover.engines --run-dir DIR`: the adapter of a run, a child of its supervisor."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from trainmover.engines.adapter import Adapter
from trainmover.engines.api import Api
from trainmover.engines.engine import Engine
from trainmover.errors import PeerLost
from trainmover.launch.runs import Run, kept_run

ANEW_S = 0.5
"""After the controller did not answer; another one is there by then, mostly."""


def engine_of(run: Run) -> Engine:
    """Return the engine of a run. No other one is imported."""
    if run.engine == "local":
        from trainmover.engines.local import Local

        return Local(run)
    from trainmover.engines.slurm import Slurm

    return Slurm(run, run.engine_args)


def main() -> int:
    """Serve until the run is over; every machine that the engine has of it is ended then."""
    parser = argparse.ArgumentParser(prog="trainmover.engines")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args()
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = kept_run(options.run_dir)
    adapter = Adapter(Api(run), engine_of(run))

    def is_over() -> bool:
        return stopped or os.getppid() != options.parent

    while not is_over():
        try:
            adapter.run(is_over)
        except PeerLost:
            time.sleep(ANEW_S)
        else:
            break
    adapter.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
