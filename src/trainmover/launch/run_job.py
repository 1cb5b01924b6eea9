# SPDX-License-Identifier: Apache-2.0
"""A whole job on this machine, from nothing to nothing, hosted by this very process: `run_job`.

For who wants to watch closely: the demo, tests, benchmarks. A controller in a process of its own,
which may be lost, is what `supervise` runs.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import msgspec

from trainmover.controller.events import WorkerSaid
from trainmover.descriptors import Shortage, raise_limit
from trainmover.ids import MachineId
from trainmover.journal import Journal
from trainmover.launch.controller.hosting import Hosting, RunHandle, RunResult
from trainmover.launch.fork_server import ForkServerProcess, hash_seed_of
from trainmover.launch.notify import Notifier, notifications
from trainmover.launch.options import RunOptions
from trainmover.launch.place import RunPlace
from trainmover.launch.processes import LocalProcesses, usable
from trainmover.launch.signals import watch_signals
from trainmover.lifeline import adopt_orphans, reap
from trainmover.protocol.messages import WorkerUp
from trainmover.server.view.notices import Happened, Notice

__all__ = ["RunHandle", "RunOptions", "RunResult", "run_job"]

OnChange = Callable[[Notice, RunHandle], None]
OnReady = Callable[[RunHandle], None]


def run_job(
    options: RunOptions,
    *,
    on_change: OnChange | None = None,
    on_ready: OnReady | None = None,
    fork_server: ForkServerProcess | None = None,
) -> RunResult:
    """Run a job to its end. Raises UserError if it could not begin.

    In the main thread SIGINT, SIGTERM and SIGHUP stop the job in order; a second one at once.
    fork_server  one that was started beforehand, to save time; the caller stops it
    """
    raise_limit()
    return asyncio.run(_Call(options, on_change, on_ready).run(fork_server))


class _Call:
    """One call of `run_job`."""

    def __init__(
        self, options: RunOptions, on_change: OnChange | None, on_ready: OnReady | None
    ) -> None:
        self._options = options
        self._on_change = on_change
        self._on_ready = on_ready
        self._hosting: Hosting | None = None
        self._notifier: Notifier | None = None
        self._ready = False
        self._stop: tuple[str, int] | None = None
        self._worker_pids: set[int] = set()
        self._shortage = Shortage("the controller", self._note)

    async def run(self, fork_server: ForkServerProcess | None) -> RunResult:
        async with AsyncExitStack() as stack:
            watch_signals(stack, self._signalled)
            adopt_orphans()
            place = RunPlace.make(self._options, stack)
            place.directory.keep(place.run)
            fork_server = await usable(fork_server, self._options, stack)
            processes = LocalProcesses(self._options, place, self, fork_server)
            store = processes.start_store(stack)
            spec = msgspec.structs.replace(
                place.spec, store=store, hash_seed=hash_seed_of(fork_server)
            )
            journal = Journal.create(place.run.journal, spec)
            stack.callback(journal.close)
            stack.callback(journal.checkpoint)
            hosting = self._host(stack, place, journal)
            stack.callback(self._reap)
            self._may_notify(stack, place)  # Its last command ends before all is reaped.
            processes.start_machines(stack)
            await hosting.serve(place.control, place.api, stack)
            hosting.store_is_at(processes.store.address)
            self._say_ready(place, hosting)
            return await hosting.result()

    def _host(self, stack: AsyncExitStack, place: RunPlace, journal: Journal) -> Hosting:
        self._hosting = Hosting(
            journal, place.token, place.run, checkpoints=place.checkpoints, watch=self._notice
        )
        stack.push_async_callback(self._hosting.server.close)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._failed)
        stack.callback(loop.set_exception_handler, None)
        return self._hosting

    def _may_notify(self, stack: AsyncExitStack, place: RunPlace) -> None:
        if not self._options.notify_cmd:
            return
        loop = asyncio.get_running_loop()

        def warn(text: str) -> None:
            with suppress(RuntimeError):  # The loop is closed: nobody hears it any more.
                loop.call_soon_threadsafe(self._note, text)

        self._notifier = Notifier(self._options.notify_cmd, place.run.run_id, warn)
        stack.callback(self._notifier.close)

    def _say_ready(self, place: RunPlace, hosting: Hosting) -> None:
        place.directory.publish(place.run)
        self._ready = True
        if self._on_ready is not None:
            self._on_ready(hosting.handle)
        for note in place.notes:
            hosting.server.note(note, loud=True)
        if self._stop is not None:
            hosting.server.stop(self._stop[1], "stopped while it started")

    def _notice(self, notice: Notice) -> None:
        if isinstance(notice, Happened):
            self._keep_pids(notice)
            if self._notifier is not None:
                for one in notifications(notice.before, notice.after, notice.text):
                    self._notifier.tell(one)
        if self._on_change is not None and self._hosting is not None:
            self._on_change(notice, self._hosting.handle)

    def _keep_pids(self, happened: Happened) -> None:
        if isinstance(happened.event, WorkerSaid) and isinstance(happened.event.fact, WorkerUp):
            self._worker_pids.add(happened.event.fact.pid)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised: the job ends, it does not limp on."""
        if self._shortage.explains(context):
            return
        error = context.get("exception") or RuntimeError(context["message"])
        if self._hosting is not None:
            self._hosting.server.failed(error)

    def _note(self, text: str) -> None:
        if self._hosting is not None:
            self._hosting.server.note(text, loud=True)

    def _signalled(self, name: str, code: int, times: int) -> None:
        self._stop = self._stop or (name, code)
        if self._hosting is not None and self._ready:
            self._hosting.signalled(name, code, times)

    def _reap(self) -> None:
        reap(self._worker_pids)

    # --- as `Told` ---

    def agent_ended(self, machine: MachineId, code: int, said: str) -> None:
        if self._hosting is not None:
            self._hosting.agent_ended(machine, code, said)

    def store_is_at(self, address: str) -> None:
        if self._hosting is not None:
            self._hosting.store_is_at(address)

    def store_lost(self, why: str) -> None:
        if self._hosting is not None:
            self._hosting.store_lost(why)
