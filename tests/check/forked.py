"""Check scripts one after another in forks of a process that has imported torch: a second each.

    python -m tests.check.forked SCRIPT [ARGUMENT ...] [-- SCRIPT ...]

Prints a line of JSON for each script: its result as the run, and as the standby.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch._dynamo
import torch.utils.data  # noqa: F401

from trainmover.check.__main__ import RUN, STANDBY, main
from trainmover.cli.check.processes import environment_of, free_port

LIMIT_S = 90
TURNS, WARM_UP, WARM_UP_OF_STANDBY = "3", os.environ.get("WARM_UP", "5"), "3"


def check(argv: list[str]) -> dict[str, Any]:
    """Results by role; None of a process that left none."""
    with tempfile.TemporaryDirectory() as folder:
        results: dict[str, Any] = {RUN: None, STANDBY: None}
        for role, warm_up in ((RUN, WARM_UP), (STANDBY, WARM_UP_OF_STANDBY)):
            if role == RUN or Path(folder, "capture").exists():
                forked([folder, role, TURNS, warm_up, "0", *argv])
            path = Path(folder, f"{role}.json")
            results[role] = json.loads(path.read_text()) if path.exists() else None
        return results


def forked(argv: list[str]) -> None:
    """Run `main` in a fork, with nothing on the screen and for so long at most."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        signal.alarm(LIMIT_S)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        os.environ.update(environment_of(0, 1, free_port()))
        main(argv)
    finally:
        os._exit(1)


if __name__ == "__main__":
    scripts: list[list[str]] = [[]]
    for word in sys.argv[1:]:
        if word == "--":
            scripts.append([])
        else:
            scripts[-1].append(word)
    for script in scripts:
        print(json.dumps({"script": script[0], **check(script)}), flush=True)
