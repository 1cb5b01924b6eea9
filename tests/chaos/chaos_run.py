"""A real `trainmover run` as those see it who want to break it: processes, status, journal."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from chaos_net import Net

from trainmover.cli.client import Client
from trainmover.controller.events import StoreMoved, WorkerSaid
from trainmover.errors import TrainmoverError
from trainmover.journal import Journal
from trainmover.launch.late import LateMachine, start_late
from trainmover.launch.runs import Run, read_run
from trainmover.protocol.messages import WorkerUp

PATIENCE_S = 90.0
WARM_S = 300.0
"""For standbys to be warm: on a busy machine a process alone takes a minute to come up."""
LOOK_S = 0.02
READY = ("warm", "holding")


class Stuck(Exception):
    """What must become true did not."""


class Running:
    """One run, from start to `end`. Everything it starts dies with this process at the latest.

    files  descriptors that each of its processes may have, soft and hard limit; 0: as this process
    """

    def __init__(self, folder: Path, command: list[str], *, files: int = 0) -> None:
        self.folder = folder
        self.journal = folder / "journal.sqlite"
        self.output = folder / "output"
        self.late: list[LateMachine] = []
        self._seen = 0
        self._workers: dict[str, dict[int, int]] = {}
        self._store = ""
        self._client: tuple[Run, Client] | None = None
        whole = [sys.executable, "-m", "trainmover", "run", "--run-dir", str(folder / "run")]
        whole += ["--journal", str(self.journal), *command]
        if files:
            whole = ["prlimit", f"--nofile={files}:{files}", *whole]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(whole, stdout=output, stderr=output)

    # --- what is so ---

    @property
    def over(self) -> bool:
        return self.process.poll() is not None

    def run(self) -> Run | None:
        return read_run(self.folder / "run")

    def status(self) -> dict[str, Any] | None:
        """None while nobody answers: the controller is being started, or the run is over."""
        run = self.run()
        if run is None:
            return None
        if self._client is None or self._client[0] != run:
            self._client = (run, Client(run))
        try:
            return self._client[1].status()
        except TrainmoverError:
            self._client = None
            return None

    def machines(self, *states: str) -> list[str]:
        """Those in one of these states."""
        status = self.status() or {"machines": []}
        return [m["id"] for m in status["machines"] if m["state"] in states]

    def ready(self, standbys: int) -> bool:
        """Whether one more loss can be borne: nothing is under way, and so many are warm."""
        status = self.status()
        if status is None or status["phase"] != "running" or status["change"] is not None:
            return False
        states = [machine["state"] for machine in status["machines"]]
        return sum(state in READY for state in states) >= standbys and "bound" not in states

    def step(self) -> int:
        status = self.status()
        return 0 if status is None else int(status["step"] or 0)

    # --- who is who ---

    def family(self) -> list[psutil.Process]:
        """All processes of the run but its supervisor."""
        roots = [self.process.pid, *(machine.pid for machine in self.late)]
        found: dict[int, psutil.Process] = {}
        for root in roots:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(root)
                for one in [process, *process.children(recursive=True)]:
                    found[one.pid] = one
        found.pop(self.process.pid, None)
        return list(found.values())

    def agent(self, machine: str) -> int | None:
        return self._with("trainmover.agent", machine)

    def controller(self) -> int | None:
        return self._with("trainmover", "controller")

    def worker(self, machine: str) -> int | None:
        """The newest worker process of a machine."""
        self._read_journal()
        pid = self._workers.get(machine, {}).get(0)
        return pid if pid is not None and psutil.pid_exists(pid) else None

    def store(self) -> int | None:
        self._read_journal()
        port = int(self._store.rpartition(":")[2] or 0)
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                for link in process.net_connections("tcp"):
                    if link.status == psutil.CONN_LISTEN and link.laddr.port == port:
                        return process.pid
        return None

    def _with(self, *words: str) -> int | None:
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                if set(words) <= set(" ".join(process.cmdline()).split()):
                    return process.pid
        return None

    def _read_journal(self) -> None:
        if not self.journal.exists():
            return
        with contextlib.suppress(TrainmoverError), Journal.open(self.journal) as journal:
            self._store = self._store or journal.spec.store
            for seq, event in journal.events(self._seen):
                self._seen = seq
                if isinstance(event, StoreMoved):
                    self._store = event.address
                elif isinstance(event, WorkerSaid) and isinstance(event.fact, WorkerUp):
                    self._workers.setdefault(event.machine, {})[event.local_rank] = event.fact.pid

    # --- what is done ---

    def until(self, true: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> None:
        """Or the run is over. Raises Stuck."""
        deadline = time.monotonic() + within_s
        while not self.over and not true():
            if time.monotonic() > deadline:
                raise Stuck(f"{what} did not happen within {within_s:.0f} s")
            time.sleep(LOOK_S)

    def add_machine(self) -> None:
        """A fresh one, a standby once it is warm."""
        status, run = self.status(), self.run()
        if status is not None and run is not None:
            names = [machine["id"] for machine in status["machines"]]
            self.late.append(start_late(run, names))

    def start_machine(self, net: Net, host: int, *, standby: bool) -> None:
        """On another host, which its name is of. To be called once there is a run."""
        run, name = self.run(), f"m{host}"
        assert run is not None
        command = [sys.executable, "-P", "-m", "trainmover", "agent"]
        command += ["--controller", run.controller, "--machine", name]
        command += ["--token-file", run.token_file, *["--standby"] * standby]
        command += run.tls.flags() if run.tls else []
        stderr = self.folder / f"{name}.err"
        with stderr.open("wb") as file:
            process = subprocess.Popen(
                net.command(host, command), stdout=file, stderr=file, start_new_session=True
            )
        self.late.append(LateMachine(name, stderr, process))

    def end(self) -> int:
        """Wait for it, as long as it makes steps; its exit status. Raises Stuck."""
        newest, deadline = -1, 0.0
        while not self.over:
            if (step := self.step()) > newest:
                newest, deadline = step, time.monotonic() + PATIENCE_S * 2
            if time.monotonic() > deadline:
                raise Stuck(f"the run did not end; its newest step is {newest}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
        for machine in self.late:
            try:
                machine.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise Stuck(f"{machine.name} outlives the run") from None
        return self.process.wait()

    def kill(self) -> None:
        """Whatever is left of it."""
        for process in self.family():
            send(process.pid, signal.SIGKILL)
        if not self.over:
            self.process.kill()
        self.process.wait()
        for machine in self.late:
            machine.process.wait()


def kill_all(process: psutil.Process) -> None:
    """It and all that it has started, as when the power fails; it first."""
    for one in [process, *process.children(recursive=True)]:
        send(one.pid, signal.SIGKILL)


def end_in_order() -> None:
    """Have SIGTERM end this process as an error would: what it has made is unmade."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def send(pid: int | None, number: int) -> None:
    """To a process that may be gone."""
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
