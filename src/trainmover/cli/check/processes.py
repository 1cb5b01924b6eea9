# SPDX-License-Identifier: Apache-2.0
"""Processes of a check: all ranks of the script, once as the run and once as standbys."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmover.errors import JobFailed

_POLL_S = 0.05
_OTHERS_S = 15.0
"""Time that other ranks have once one has ended: they stand in the same step."""
_LINES = 12


@dataclass(frozen=True)
class Wanted:
    """Order to run a script.

    folder     for files, with one folder in it for each rank
    timeout_s  for each role
    """

    folder: Path
    script: list[str]
    is_module: bool
    ranks: int
    turns: int
    timeout_s: float


def run_all(wanted: Wanted, role: str, warm_up: int) -> list[dict[str, Any]]:
    """Run all ranks in a role; return their results. Raises JobFailed if one leaves none."""
    port = free_port()
    with ExitStack() as stack:
        processes = [
            stack.enter_context(_process(wanted, role, warm_up, rank, port))
            for rank in range(wanted.ranks)
        ]
        _wait(processes, wanted.timeout_s)
        status = [one.poll() for one in processes]
    return [_result(wanted, role, rank, status[rank]) for rank in range(wanted.ranks)]


def folder_of(wanted: Wanted, rank: int) -> Path:
    """Return the folder of a rank's files."""
    return wanted.folder / str(rank)


def tail_of(wanted: Wanted, role: str, rank: int) -> str:
    """Return the last lines that a rank has written."""
    text = (folder_of(wanted, rank) / f"{role}.out").read_text(errors="replace")
    return "\n".join(f"    {line}" for line in text.splitlines()[-_LINES:])


@contextmanager
def _process(
    wanted: Wanted, role: str, warm_up: int, rank: int, port: int
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run one rank. What it has started ends with it: it is a session of its own."""
    folder = folder_of(wanted, rank)
    folder.mkdir(exist_ok=True)
    words = [str(folder), role, str(wanted.turns), str(warm_up), str(int(wanted.is_module))]
    with (folder / f"{role}.out").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainmover.check", *words, *wanted.script],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | environment_of(rank, wanted.ranks, port),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def environment_of(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Return what torchrun would say to a rank, and that hashes are the same everywhere."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONHASHSEED": "0"}
    return {name: str(number) for name, number in numbers.items()} | where


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(processes: "list[subprocess.Popen[bytes]]", timeout_s: float) -> None:
    """Wait until all have ended, or those that have not cannot be waited for."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        ended = [one for one in processes if one.poll() is not None]
        if len(ended) == len(processes):
            return
        if ended:
            deadline = min(deadline, time.monotonic() + _OTHERS_S)
        time.sleep(_POLL_S)


def _result(wanted: Wanted, role: str, rank: int, status: int | None) -> dict[str, Any]:
    path = folder_of(wanted, rank) / f"{role}.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    made = f"has made too few steps in {wanted.timeout_s:g} s"
    ended = made if status is None else f"has ended with status {status}"
    raise JobFailed(
        f"The {role} of rank {rank} {ended}.",
        means="The script could not be checked. Its last lines:\n" + tail_of(wanted, role, rank),
        do="See that the script runs by itself; --timeout gives it more time.",
    )
