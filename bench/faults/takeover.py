# SPDX-License-Identifier: Apache-2.0
"""From the death of a controller until the next one has heard of all machines."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.faults.detection import SCRIPT
from trainmover.launch.controller.process import DEATHS_MAX
from trainmover.launch.runs import kept_run
from trainmover.token_file import read_token

MACHINES = 4
SETTLE_S = 2.0
LIMIT_S = 120.0
LOOK_S = 0.002


def measure(trials: int, said: Callable[[str], None], machines: int = MACHINES) -> list[float]:
    """Milliseconds from SIGKILL until status shows all machines with their ranks again."""
    took_ms: list[float] = []
    while len(took_ms) < trials:  # A run that loses more controllers within a minute gives up.
        took_ms += _of_one_run(min(DEATHS_MAX - 1, trials - len(took_ms)), said, machines)
    return took_ms


def _of_one_run(trials: int, said: Callable[[str], None], machines: int) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="bench-takeover-") as folder:
        place = Path(folder) / "run"
        command = [sys.executable, "-m", "trainmover", "run", "--machines", str(machines)]
        command += ["--run-dir", str(place), str(SCRIPT), "--steps", "1000000", "--pace", "0.02"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]
        try:
            return _measure(process.pid, _Asked(place, machines), trials, said)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _measure(pid: int, asked: "_Asked", trials: int, said: Callable[[str], None]) -> list[float]:
    _until(asked.trains, "the first steps")
    took_ms: list[float] = []
    for restarts in range(1, trials + 1):
        time.sleep(SETTLE_S)
        controller = _controller(pid)
        begun_s = time.monotonic()
        os.kill(controller, signal.SIGKILL)
        _until(lambda known=restarts: asked.trains(known), "another controller")  # type: ignore[misc]
        took_ms.append((time.monotonic() - begun_s) * 1000.0)
        said(f"controller killed{took_ms[-1]:8.0f} ms until all is known again")
    return took_ms


class _Asked:
    """A run, by its API."""

    def __init__(self, place: Path, machines: int) -> None:
        _until(lambda: (place / "run.json").exists(), "the run")
        run, self._machines = kept_run(place), machines
        self._url = f"{run.api_url}/api/v1/status"
        token = read_token(Path(run.token_file)).decode()
        headers = {"Authorization": f"Bearer {token}"}
        # One for all questions: to make one costs more of the processor than an answer does.
        self._client = httpx.Client(headers=headers, timeout=LIMIT_S, trust_env=False)

    def trains(self, restarts: int = 0) -> bool:
        """Whether a controller that was restarted so often has heard of every machine since."""
        with contextlib.suppress(httpx.HTTPError):
            status: dict[str, Any] = self._client.get(self._url).json()
            back = [m for m in status["machines"] if m["ranks"] and m["last_seen_s"] < 1.0]
            known = status["controller"]["restarts"] == restarts
            return known and status["phase"] == "running" and len(back) == self._machines
        return False


def _until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not come within {LIMIT_S:.0f} s")
        time.sleep(LOOK_S)


def _controller(supervisor: int) -> int:
    for process in psutil.Process(supervisor).children():
        with contextlib.suppress(psutil.Error):
            if "controller" in " ".join(process.cmdline()).split():
                return process.pid
    raise RuntimeError("there is no controller")
