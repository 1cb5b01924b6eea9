"""The processes of a local run beside its controller: nursery, store and one agent per machine.

What is started here is ended here, in every way out: all of it dies with this process even if that
is killed, and workers die with their agents.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

from trainmover.ids import MachineId
from trainmover.launch.local import LocalMachines, LocalPlan
from trainmover.launch.nursery import NurseryProcess
from trainmover.launch.options import RunOptions
from trainmover.launch.place import RunPlace
from trainmover.launch.store import Door, KeptStore
from trainmover.launch.tls import LOOPBACK
from trainmover.lifeline import kill_descendants


class Told(Protocol):
    """Who hears, on the loop, what becomes of the processes."""

    def agent_ended(self, machine: MachineId, code: int, said: str) -> None: ...
    def store_is_at(self, address: str) -> None: ...
    def store_lost(self, why: str) -> None: ...


class LocalProcesses:
    """All that live on this machine for one run. `start_store` comes first.

    nursery  one that can be used; None: everything is executed
    """

    def __init__(
        self, options: RunOptions, place: RunPlace, told: Told, nursery: NurseryProcess | None
    ) -> None:
        self._run_id = place.directory.run_id
        self._controller = place.run.controller
        self._nursery = nursery
        self._elsewhere = bool(options.bind)
        host = options.bind.rpartition(":")[0] or LOOPBACK[0]
        door = Door(host, place.token_file, place.run.tls)
        self.store = KeptStore(nursery, door, moved=told.store_is_at, lost=told.store_lost)
        self._machines = LocalMachines(_plan(options, place), told.agent_ended, nursery)

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
        if not self._elsewhere:
            self._machines.start(self._controller)

    def _leave_nothing(self) -> None:
        if self._nursery is None:
            kill_descendants(self._run_id)
        else:
            spared: Sequence[int] = (self._nursery.pid, self.store.pid)
            kill_descendants(self._run_id, self._nursery.mark, spared=spared)
            self._nursery.reap()


async def usable(
    nursery: NurseryProcess | None, options: RunOptions, stack: AsyncExitStack
) -> NurseryProcess | None:
    """The nursery given, else one that ends with `stack`; None if nothing can be forked from it."""
    if nursery is None and not options.worker:
        nursery = stack.enter_context(NurseryProcess())
    return nursery if nursery is not None and await nursery.ready() else None


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
