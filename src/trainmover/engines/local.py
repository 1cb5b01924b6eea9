# SPDX-License-Identifier: Apache-2.0
"""Machines as agent processes of this host: to try engines out, and to measure others by."""

import os
import signal
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from trainmover.engines.engine import Seen, State, agent_flags, last_line
from trainmover.launch.local import AGENT, spawn
from trainmover.launch.runs import Run, process_started
from trainmover.ownership import create_file


class Local:
    """Each machine has a file with its process in the run's directory, so that another adapter
    finds it."""

    look_s = 0.25

    def __init__(self, run: Run) -> None:
        self._run = run
        self._place = Path(run.directory) / "engine"
        self._place.mkdir(mode=0o700, exist_ok=True)
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, names: Sequence[str], *, standby: bool, avoid: Collection[str]) -> None:
        """There is one node, which takes all."""
        for name in names:
            directory = self._place / name
            flags = ["--machine", name, "--dir", str(directory), "--run", str(self._run.pid)]
            flags += ["--standby"] * standby
            directory.mkdir(mode=0o700)
            with os.fdopen(create_file(self._place / f"{name}.err"), "wb") as stderr:
                child = spawn(
                    [*AGENT, *agent_flags(self._run), *flags],
                    self._run.run_id,
                    stdout=stderr.fileno(),
                    stderr=stderr.fileno(),
                )
            self._children[child.pid] = child
            started = process_started(child.pid)
            (self._place / f"{name}.pid").write_text(f"{child.pid} {started}")

    def end(self, names: Collection[str]) -> None:
        for name in names:
            if (pid := self._pid(name)) is not None:
                os.kill(pid, signal.SIGTERM)

    def look(self) -> dict[str, Seen]:
        for child in self._children.values():
            child.poll()  # One that has ended is none any more.
        names = [path.stem for path in self._place.glob("*.pid")]
        here = {name: pid for name in names if (pid := self._pid(name)) is not None}
        return {name: Seen(State.RUNNING, node=name) for name in here}

    def words(self, name: str) -> str:
        return last_line(self._place / f"{name}.err")

    def close(self) -> None:
        self.end(self.look().keys())

    def _pid(self, name: str) -> int | None:
        try:
            pid, started = (self._place / f"{name}.pid").read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if str(process_started(int(pid))) == started else None
