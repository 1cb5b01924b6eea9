# SPDX-License-Identifier: Apache-2.0
"""A controller in a process of its own: what `trainmover controller` does.

A supervisor has started it, and starts another when it dies; or somebody did by hand, for a run
whose agents live elsewhere. It goes on from the journal it finds.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trainmover.descriptors import Shortage, raise_limit
from trainmover.errors import JobFailed, TrainmoverError, UserError
from trainmover.ids import MachineId
from trainmover.journal import Journal
from trainmover.journal.memory import Memory
from trainmover.launch.controller.channel import (
    AgentEnded,
    Begin,
    Channel,
    Heard,
    Over,
    Ready,
    Signalled,
    StoreIsAt,
    StoreLost,
)
from trainmover.launch.controller.hosting import Hosting, RunHandle, RunResult
from trainmover.launch.run_job import OnChange
from trainmover.launch.runs import Run, RunDirectory, kept_run, lived_by_us
from trainmover.launch.signals import watch_signals
from trainmover.lifeline import die_with, flush_output
from trainmover.protocol.messages import JobSpec
from trainmover.server.checkpoints.folder import CheckpointFolder
from trainmover.server.run import Server, bind, collect_seldom
from trainmover.server.view.notices import Notice
from trainmover.token_file import read_token
from trainmover.tracebacks import print_exception

FAILED = 70
SHOWN_S = 1.0
"""For the last words of a run that was stopped, if nobody reads them."""


@dataclass(frozen=True)
class Inherited:
    """Descriptors that came from the supervisor, -1: there is none. parent: its pid, or 0."""

    supervisor: int = -1
    control: int = -1
    api: int = -1
    checkpoint_lock: int = -1
    journal_memory: int = -1
    parent: int = 0


def control(
    directory: Path,
    inherited: Inherited,
    *,
    on_change: OnChange,
    on_ready: Callable[[RunHandle, bool], None],
    on_end: Callable[[RunResult], Awaitable[None]],
) -> int:
    """Control the run of `directory` until it is over; its exit status. Raises UserError.

    on_ready  told whether another controller was before this one
    on_end    shows the result, before the supervisor hears that all is said; it may wait for who
              reads that, unless the run was stopped
    """
    if inherited.parent:
        die_with(inherited.parent)
    raise_limit()
    collect_seldom()

    async def run() -> int:
        return await _Control(directory, inherited, on_change, on_ready, on_end).run()

    return asyncio.run(run())


class _Control:
    """One call of `control`."""

    def __init__(
        self,
        directory: Path,
        inherited: Inherited,
        on_change: OnChange,
        on_ready: Callable[[RunHandle, bool], None],
        on_end: Callable[[RunResult], Awaitable[None]],
    ) -> None:
        self._directory = directory
        self._inherited = inherited
        self._on_change = on_change
        self._on_ready = on_ready
        self._on_end = on_end
        self._hosting: Hosting | None = None
        self._channel: Channel | None = None
        self._stop: tuple[str, int, int] | None = None
        self._told_to_stop = asyncio.Event()

    async def run(self) -> int:
        begin = Begin(notes=[])
        if self._inherited.supervisor >= 0:
            self._channel = Channel.inherited(self._inherited.supervisor)
            begin = await self._begun()
        try:
            async with AsyncExitStack() as stack:
                watch_signals(stack, self._signalled)
                code = await self._control(begin, stack)
        except TrainmoverError as error:  # Another controller could do no better.
            self._say(Over(code=2 if isinstance(error, UserError) else 1))
            raise
        self._say(Over(code=code))
        return code

    async def _control(self, begin: Begin, stack: AsyncExitStack) -> int:
        run = kept_run(self._directory)
        journal = Journal.take_over(run.journal, self._memory())
        stack.callback(journal.close)
        stack.callback(journal.checkpoint)
        control, api = self._sockets(run, stack)
        hosting = Hosting(
            journal,
            read_token(Path(run.token_file)),
            run,
            checkpoints=self._checkpoints(journal.spec, stack),
            watch=self._notice,
            lost_us=begin.lost_us,
        )
        stack.push_async_callback(hosting.server.close)
        self._hosting = hosting
        shortage = Shortage("the controller", partial(hosting.server.note, loud=True))
        asyncio.get_running_loop().set_exception_handler(partial(_fail, hosting.server, shortage))
        await hosting.serve(control, api, stack)
        self._on_ready(hosting.handle, hosting.returned)
        for note in begin.notes if not hosting.returned else ():
            hosting.server.note(note, loud=True)
        if begin.killed:
            hosting.server.note(f"the controller was killed: {begin.killed}", loud=True)
        self._publish(run, stack)
        self._listen()
        result = await hosting.result()
        await self._show_end(result)
        return result.code

    async def _show_end(self, result: RunResult) -> None:
        """The reader of a pager takes his time; who stops a run does not wait for him."""
        shown = asyncio.ensure_future(self._on_end(result))
        stopped = asyncio.ensure_future(self._stopped_for(SHOWN_S))
        await asyncio.wait({shown, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if shown.done():
            shown.result()

    async def _stopped_for(self, seconds: float) -> None:
        await self._told_to_stop.wait()
        await asyncio.sleep(seconds)

    def _publish(self, run: Run, stack: AsyncExitStack) -> None:
        """By hand: it lives as long as we do. A supervisor publishes it as its own."""
        if self._channel is None:
            directory = RunDirectory(self._directory, run.run_id)
            directory.findable()
            directory.publish(lived_by_us(run))
            stack.callback(directory.withdraw)

    def _checkpoints(self, spec: JobSpec, stack: AsyncExitStack) -> CheckpointFolder | None:
        """Locked by the supervisor, if there is one."""
        if not spec.checkpoint:
            return None
        if self._inherited.checkpoint_lock >= 0:
            return CheckpointFolder(Path(spec.checkpoint), self._inherited.checkpoint_lock)
        folder = CheckpointFolder.take(Path(spec.checkpoint), going_on=True)
        stack.callback(folder.close)
        return folder

    def _memory(self) -> Memory | None:
        """Held by the supervisor too, if there is one: it outlives us."""
        descriptor = self._inherited.journal_memory
        if descriptor < 0:
            return None
        os.set_inheritable(descriptor, False)
        return Memory(descriptor)

    def _sockets(self, run: Run, stack: AsyncExitStack) -> tuple[socket.socket, socket.socket]:
        given = self._inherited
        if given.control >= 0:
            control, api = (socket.socket(fileno=fd) for fd in (given.control, given.api))
        else:
            control = bind(run.controller, "The controller")
            api = bind(run.api_bind or run.api_url.rpartition("/")[2], "The API")
        for sock in (control, api):
            sock.set_inheritable(False)
            stack.callback(sock.close)
        return control, api

    def _notice(self, notice: Notice) -> None:
        if self._hosting is not None:
            self._on_change(notice, self._hosting.handle)

    # --- the supervisor ---

    async def _begun(self) -> Begin:
        """Its first message, once it has come. The others stay where they are."""
        assert self._channel is not None
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._channel, readable.set)
        await readable.wait()
        loop.remove_reader(self._channel)
        message = self._channel.first()
        assert isinstance(message, Begin)
        return message

    def _listen(self) -> None:
        """Hear the supervisor from now on; and whoever has stopped the run so far."""
        if self._stop is not None:
            self._signalled(*self._stop)
        if self._channel is not None:
            self._say(Ready())
            asyncio.get_running_loop().add_reader(self._channel, self._hear)

    def _hear(self) -> None:
        assert self._channel is not None
        try:
            messages = self._channel.heard()
        except ConnectionError:  # The kernel is about to end us.
            asyncio.get_running_loop().remove_reader(self._channel)
            return
        for message in messages:
            self._take(message)
            self._say(Heard(number=message.number))

    def _take(self, message: Any) -> None:
        assert self._hosting is not None
        match message:
            case AgentEnded():
                machine = MachineId(message.machine)
                self._hosting.agent_ended(machine, message.code, message.said)
            case StoreIsAt():
                self._hosting.store_is_at(message.address)
            case StoreLost():
                self._hosting.store_lost(message.why)
            case Signalled():
                self._told_to_stop.set()
                self._hosting.signalled(message.name, message.code, message.times)

    def _say(self, message: Ready | Heard | Over) -> None:
        if self._channel is not None:
            self._channel.say(message)

    def _signalled(self, name: str, code: int, times: int) -> None:
        self._stop = (name, code, times)
        self._told_to_stop.set()
        if self._hosting is not None:
            self._hosting.signalled(name, code, times)


def _fail(
    server: Server, shortage: Shortage, _: asyncio.AbstractEventLoop, context: dict[str, Any]
) -> None:
    """A callback raised: nothing here can be trusted any more. The journal can: a successor may do
    better, and the machines train on until it is there. Unless it is known that none can. An accept
    that found no free descriptor is no such case."""
    if shortage.explains(context):
        return
    error = context.get("exception")
    if isinstance(error, JobFailed):
        server.failed(error)
        return
    try:
        print_exception(error or RuntimeError(context["message"]))
        flush_output()
    finally:
        os._exit(FAILED)
