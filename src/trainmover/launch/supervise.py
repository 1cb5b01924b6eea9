# SPDX-License-Identifier: Apache-2.0
"""A job on this machine whose controller may be lost: what `trainmover run` does.

    supervisor: place of the run, fork server, store, agents; it decides nothing
      └─ controller: server, API, journal, screen; started again when it dies

Sockets are the supervisor's: who dials while no controller lives waits in their queue. If the
supervisor itself is killed, everything of the run on this machine dies with it.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from trainmover.descriptors import raise_limit
from trainmover.errors import JobFailed
from trainmover.ids import MachineId
from trainmover.journal import Journal
from trainmover.launch.controller.channel import AgentEnded, Signalled, StoreIsAt, StoreLost
from trainmover.launch.controller.process import ControllerProcess
from trainmover.launch.fork_server import ForkServerProcess, hash_seed_of
from trainmover.launch.options import RunOptions
from trainmover.launch.place import RunPlace
from trainmover.launch.processes import LocalProcesses, usable
from trainmover.launch.runs import begun_us
from trainmover.launch.signals import watch_signals
from trainmover.lifeline import adopt_orphans

AT_ONCE = 3
"""So many signals to stop, and nobody is asked any more."""


def supervise(
    options: RunOptions, *, json: bool = False, fork_server: ForkServerProcess | None = None
) -> int:
    """Run a job to its end; the exit status. Raises UserError if it could not begin, JobFailed if
    its controller could not be kept alive.

    json     what is shown is for programs
    fork_server  as in `run_job`
    """

    raise_limit()

    async def run() -> int:
        return await _Supervisor(options, json=json).run(fork_server)

    return asyncio.run(run())


class _Supervisor:
    """One call of `supervise`."""

    def __init__(self, options: RunOptions, *, json: bool) -> None:
        self._options = options
        self._json = json
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._controller: ControllerProcess | None = None
        self._stopped: Signalled | None = None

    async def run(self, fork_server: ForkServerProcess | None) -> int:
        async with AsyncExitStack() as stack:
            watch_signals(stack, self._signalled)
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(self._failed)
            adopt_orphans()
            place = RunPlace.make(self._options, stack)
            place.directory.keep(place.run)
            controller = ControllerProcess(
                place, json=self._json, watch=self._options.watch, over=self._over
            )
            stack.push_async_callback(controller.stop)
            stack.callback(self._over.cancel)  # However this ends, no other controller is started.
            controller.start()  # It imports while the fork server does.
            fork_server = await usable(fork_server, self._options, stack)
            processes = LocalProcesses(self._options, place, self, fork_server)
            store = processes.start_store(stack)
            spec = msgspec.structs.replace(
                place.spec, store=store, hash_seed=hash_seed_of(fork_server)
            )
            launched_us = begun_us(place.run.started)
            Journal.create(place.run.journal, spec, launched_us=launched_us).close()
            self._controller = controller
            controller.begin(place.notes)
            if self._stopped is not None:
                controller.tell(self._stopped)
            processes.start_machines(stack)
            code = await self._over
            await controller.ended()
            return code

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised: the job ends, it does not limp on."""
        error = context.get("exception") or RuntimeError(context["message"])
        self._end(error)

    def _end(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _signalled(self, name: str, code: int, times: int) -> None:
        self._stopped = Signalled(name=name, code=code, times=times)
        if self._controller is not None:
            self._controller.tell(self._stopped)
        if times >= AT_ONCE:
            self._end(
                JobFailed(
                    f"The run was stopped by {name}, {times} times.",
                    means="Everything of it was killed; the job may not have ended in order.",
                    code=code,
                )
            )

    # --- as `Told` ---

    def agent_ended(self, machine: MachineId, code: int, said: str) -> None:
        assert self._controller is not None
        self._controller.tell(AgentEnded(machine=machine, code=code, said=said))

    def store_is_at(self, address: str) -> None:
        if self._controller is not None:
            self._controller.tell(StoreIsAt(address=address))

    def store_lost(self, why: str) -> None:
        if self._controller is not None:
            self._controller.tell(StoreLost(why=why))
