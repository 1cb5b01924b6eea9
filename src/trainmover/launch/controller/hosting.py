# SPDX-License-Identifier: Apache-2.0
"""A controller at work in this process: server, API, journal, from the start to the job's end."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmover.controller.effects import Answer
from trainmover.controller.events import MachineJoined
from trainmover.controller.state import Job
from trainmover.ids import MachineId
from trainmover.journal import Journal
from trainmover.launch.runs import Run
from trainmover.server.checkpoints.folder import CheckpointFolder
from trainmover.server.history.past import Past
from trainmover.server.http.api import Api
from trainmover.server.machines.absence import AGENT_ENDED
from trainmover.server.run import STOP_GRACE_S, Server
from trainmover.server.view.notices import Notice


@dataclass(frozen=True)
class RunResult:
    """How it ended.

    code  exit status
    text  for the user; "" if all is said
    job   its last state
    """

    code: int
    text: str
    job: Job
    run_id: str
    journal: Path | None


class RunHandle:
    """A live run, for callbacks. Use it on the loop's thread only."""

    def __init__(self, server: Server, run: Run) -> None:
        self.server = server
        self.run = run

    def move(self, machine: str) -> asyncio.Future[Answer]:
        return self.server.move(machine)

    def kill(self, machine: str) -> asyncio.Future[Answer]:
        return self.server.kill(machine)

    def stop(self, code: int = 1, why: str = "asked to stop") -> None:
        self.server.stop(code, why)

    def status(self) -> dict[str, Any]:
        return self.server.status()


class Hosting:
    """Of one journal, which stays the caller's. What is in it already was another controller's.

    returned  whether there was one before this; it died at lost_us, if that is known
    """

    def __init__(
        self,
        journal: Journal,
        token: bytes,
        run: Run,
        *,
        checkpoints: CheckpointFolder | None,
        watch: Callable[[Notice], None],
        lost_us: int = 0,
    ) -> None:
        past = Past.of(journal)
        self._tls = None if run.tls is None else run.tls.read()
        self.returned = past.seq > 0
        self.server = Server(
            journal.spec,
            token,
            journal,
            watch=watch,
            shutdown_s=run.shutdown_s,
            checkpoints=checkpoints,
            past=past if self.returned else None,
            lost_us=lost_us,
            tls=self._tls,
        )
        self.handle = RunHandle(self.server, run)
        self._journal = journal
        self._token = token
        self._signals = 0

    async def serve(
        self, control: socket.socket, api_socket: socket.socket, stack: AsyncExitStack
    ) -> None:
        """Take in agents and requests until `stack` ends."""
        await self.server.start(control)
        names = [self.handle.run.api_bind.rpartition(":")[0].lower()]
        api = Api(self.server, self._token, self._tls, names=list(filter(None, names)))
        await api.start(api_socket)
        stack.push_async_callback(api.close)

    async def result(self) -> RunResult:
        """Once the job is over and everybody has left. Raises if the server itself failed."""
        code, text = await self.server.ended
        server, run = self.server, self.handle.run
        return RunResult(code, text, server.job, run.run_id, Path(run.journal))

    # --- what the processes of the run report ---

    def agent_ended(self, machine: MachineId, code: int, said: str) -> None:
        """Its machine is lost by itself; one that never joined would be missed for ever."""
        self.server.machine_ended(machine, AGENT_ENDED)
        if self.server.over:
            return
        if not self._has_joined(machine):
            why = f"The agent of {machine} ended before it had joined ({code}).\n{said}"
            self.server.stop(1, why)
        elif code > 1 or "Traceback" in said:
            self.server.note(f"the agent of {machine} ended ({code}): {said}", loud=True)

    def store_is_at(self, address: str) -> None:
        """Said again it is no news."""
        server = self.server
        if address != (server.job.store or server.spec.store):
            server.store_moved(address)

    def store_lost(self, why: str) -> None:
        self.server.stop(1, why)

    def signalled(self, name: str, code: int, times: int) -> None:
        """The first stops the job in order, a second one at once; told of one twice is once."""
        if times > self._signals == 0:
            self.server.stop(code, f"stopped by {name}", grace_s=STOP_GRACE_S)
        if times > 1:
            self.server.stop(code, f"stopped by {name}")
            self.server.kill_all()
        self._signals = max(self._signals, times)

    def _has_joined(self, machine: MachineId) -> bool:
        joined = self._journal.events_of(MachineJoined)
        return any(event.machine == machine for event in joined)
