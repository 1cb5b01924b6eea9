# SPDX-License-Identifier: Apache-2.0
"""The processes of a local run beside its controller: fork server, store and one agent per machine.

What is started here is ended here, in every way out: all of it dies with this process even if that
is killed, and workers die with their agents.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

from trainmover.ids import MachineId
from trainmover.launch.engine import EngineProcess
from trainmover.launch.fork_server import ForkServerProcess
from trainmover.launch.local import LocalMachines, LocalPlan
from trainmover.launch.options import RunOptions
from trainmover.launch.place import RunPlace
from trainmover.launch.store import KeptStore, ListensAt
from trainmover.launch.tls import LOOPBACK
from trainmover.lifeline import kill_descendants


class Told(Protocol):
    """Who hears, on the loop, what becomes of the processes."""

    def agent_ended(self, machine: MachineId, code: int, said: str) -> None: ...
    def store_is_at(self, address: str) -> None: ...
    def store_lost(self, why: str) -> None: ...


class LocalProcesses:
    """All that live on this machine for one run. `start_store` comes first.

    fork_server  one that can be used; None: everything is executed
    """

    def __init__(
        self,
        options: RunOptions,
        place: RunPlace,
        told: Told,
        fork_server: ForkServerProcess | None,
    ) -> None:
        self._run_id = place.directory.run_id
        self._controller = place.run.controller
        self._fork_server = fork_server
        self._elsewhere = bool(options.bind or options.engine)
        self._engine = EngineProcess(Path(place.run.directory)) if options.engine else None
        host = options.bind.rpartition(":")[0] or LOOPBACK[0]
        at = ListensAt(host, place.token_file, place.run.tls)
        self.store = KeptStore(fork_server, at, moved=told.store_is_at, lost=told.store_lost)
        self._machines = LocalMachines(_plan(options, place), told.agent_ended, fork_server)

    def start_store(self, stack: AsyncExitStack) -> str:
        """Where it listens; it ends with `stack`. Raises JobFailed."""
        self.store.start()
        stack.callback(self.store.stop)
        return self.store.address

    def start_machines(self, stack: AsyncExitStack) -> None:
        """Agents, which dial the controller; they end with `stack`, and all that is theirs. None
        where machines come from other hosts."""
        stack.callback(self._leave_nothing)
        stack.push_async_callback(self._machines.stop)
        if self._engine is not None:
            stack.push_async_callback(self._engine.stop)
            self._engine.start()
        if not self._elsewhere:
            self._machines.start(self._controller)

    def _leave_nothing(self) -> None:
        if self._fork_server is None:
            kill_descendants(self._run_id)
        else:
            spared: Sequence[int] = (self._fork_server.pid, self.store.pid)
            kill_descendants(self._run_id, self._fork_server.mark, spared=spared)
            self._fork_server.reap()


async def usable(
    fork_server: ForkServerProcess | None, options: RunOptions, stack: AsyncExitStack
) -> ForkServerProcess | None:
    """The one given, else one that ends with `stack`; None if nothing can be forked from it."""
    if fork_server is None and not options.worker:
        fork_server = stack.enter_context(ForkServerProcess())
    return fork_server if fork_server is not None and await fork_server.ready() else None


def _plan(options: RunOptions, place: RunPlace) -> LocalPlan:
    return LocalPlan(
        run_id=place.directory.run_id,
        machines=options.machines,
        standbys=options.standbys,
        nproc=options.nproc,
        directory=Path(place.run.directory),
        token_file=place.token_file,
        role=options.role,
        shutdown_s=options.shutdown_s,
        worker=options.worker,
        tls=place.run.tls,
    )
