# SPDX-License-Identifier: Apache-2.0
"""The local launcher: every machine of the job is an agent process on this one."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from trainmover.fork_server import Child
from trainmover.ids import MachineId
from trainmover.launch.fork_server import ForkServerProcess
from trainmover.lifeline import when_ended
from trainmover.ownership import create_file
from trainmover.tls.files import TlsFiles

AGENT = (sys.executable, "-P", "-m", "trainmover.agent")
TAIL_BYTES = 4096
END_S = 3.0
Process: TypeAlias = "subprocess.Popen[bytes] | Child"


@dataclass(frozen=True, kw_only=True)
class LocalPlan:
    """What to start. directory: gets one folder per machine; worker: another program for tests."""

    run_id: str
    machines: int
    standbys: int
    nproc: int
    directory: Path
    token_file: Path
    role: str = "default"
    shutdown_s: float = 5.0
    worker: tuple[str, ...] = ()
    tls: TlsFiles | None = None


class LocalMachines:
    """Agents m1, m2, ...; the last `standbys` of them join without ranks.

    ended(machine, code, stderr's tail) is called on the loop when an agent's process has ended.
    """

    def __init__(
        self,
        plan: LocalPlan,
        ended: Callable[[MachineId, int, str], None],
        fork_server: ForkServerProcess | None,
    ) -> None:
        self._plan = plan
        self._ended = ended
        self._fork_server = fork_server
        self._agents: dict[MachineId, Process] = {}
        self._unwatch: dict[MachineId, Callable[[], None]] = {}

    @property
    def pids(self) -> dict[MachineId, int]:
        return {machine: agent.pid for machine, agent in self._agents.items()}

    def start(self, controller: str) -> None:
        """Start all agents; they dial `controller` (host:port)."""
        plan = self._plan
        for number in range(1, plan.machines + plan.standbys + 1):
            self._start_agent(MachineId(f"m{number}"), controller, number > plan.machines)

    async def stop(self) -> None:
        """End what is left, at the latest after a few seconds by SIGKILL."""
        for agent in self._agents.values():
            signal_process(agent, signal.SIGINT)
        deadline = asyncio.get_running_loop().time() + END_S
        while any(agent.poll() is None for agent in self._agents.values()):
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """SIGKILL what is left, and wait for it."""
        for agent in self._agents.values():
            signal_process(agent, signal.SIGKILL)
            agent.wait()
        for unwatch in self._unwatch.values():
            unwatch()

    def _start_agent(self, machine: MachineId, controller: str, standby: bool) -> None:
        plan = self._plan
        directory = plan.directory / machine
        directory.mkdir(mode=0o700)
        arguments = agent_arguments(
            controller,
            machine,
            nproc=plan.nproc,
            token_file=str(plan.token_file),
            directory=directory,
            role=plan.role,
            shutdown_s=plan.shutdown_s,
            worker=plan.worker,
            standby=standby,
            tls=plan.tls,
        )
        arguments += ["--parent", str(os.getpid())]
        with os.fdopen(create_file(self._stderr(machine)), "wb") as stderr:
            agent = self._spawn(arguments, stderr.fileno())
        self._agents[machine] = agent
        loop, ended = asyncio.get_running_loop(), partial(self._agent_ended, machine)
        self._unwatch[machine] = when_ended(loop, agent.pid, ended)

    def _spawn(self, arguments: Sequence[str], output: int) -> Process:
        if self._fork_server is not None:
            with suppress(OSError):
                return self._fork_server.bear_agent(arguments, self._plan.run_id, output)
        return spawn([*AGENT, *arguments], self._plan.run_id, stdout=output, stderr=output)

    def _agent_ended(self, machine: MachineId) -> None:
        code = self._agents[machine].wait()
        data = self._stderr(machine).read_bytes()[-TAIL_BYTES:]
        self._ended(machine, code, data.decode(errors="replace").strip())

    def _stderr(self, machine: MachineId) -> Path:
        return self._plan.directory / f"{machine}.err"


def agent_arguments(
    controller: str,
    machine: str,
    *,
    nproc: int,
    token_file: str,
    directory: Path,
    role: str,
    shutdown_s: float,
    worker: tuple[str, ...],
    standby: bool,
    rack: str = "",
    tls: TlsFiles | None = None,
    run: int | None = None,
) -> list[str]:
    """Of an agent on this machine. run: pid of the run's process, if that is not to be its
    parent."""
    flags = ["--machine", machine, "--controller", controller, "--nproc", str(nproc)]
    flags += ["--token-file", token_file, "--dir", str(directory)]
    flags += ["--role", role, "--shutdown-timeout", str(shutdown_s)] + ["--standby"] * standby
    flags += ["--rack", rack] if rack else []
    flags += ["--run", str(run)] if run is not None else []
    flags += tls.flags() if tls is not None else []
    return flags + (["--worker", json.dumps(worker)] if worker else [])


def spawn(
    command: Sequence[str], run_id: str, *, stdout: int, stderr: int | None
) -> "subprocess.Popen[bytes]":
    """A child in a session of its own: a Ctrl-C at the terminal is for us, not for it."""
    return subprocess.Popen(
        command,
        env=os.environ | {"TRAINMOVER_RUN_ID": run_id},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


def signal_process(process: Process, number: int) -> None:
    if process.poll() is None:
        process.send_signal(number)
