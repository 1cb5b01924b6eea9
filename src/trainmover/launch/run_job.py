"""A whole job on this machine, from nothing to nothing: `run_job`.

What is started here is ended here, in every way out: the agents and the store die with this process
even if it is killed, workers die with their agents, and the run's directory is removed.
"""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from trainmover import communicators
from trainmover.controller.effects import Answer
from trainmover.controller.events import WorkerSaid
from trainmover.controller.state import Job
from trainmover.errors import UserError
from trainmover.ids import MachineId
from trainmover.journal import Journal
from trainmover.launch.local import LocalMachines, LocalPlan, StoreProcess
from trainmover.launch.runs import Run, RunDirectory, process_started
from trainmover.lifeline import adopt_orphans, kill_descendants, reap
from trainmover.protocol.hello import TOKEN_BYTES_MIN
from trainmover.protocol.messages import JobSpec, LogSpec, WorkerUp
from trainmover.server.api import Api
from trainmover.server.notices import Happened, Notice
from trainmover.server.run import Server, bind

_STORE_ENDED = (
    "The key-value store's process has ended.\n"
    "The job has ended: its groups could not be built again after the next loss.\n"
    "Look at the memory of this machine, then start the job again."
)
STOP_SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What to run and how. Defaults are those of `trainmover run`.

    journal     where to keep the journal; None: it goes with the run
    token_file  a token to use; None: a fresh one
    run_dir     the run's private directory; None: under TRAINMOVER_HOME
    record      how large outputs of the first steps are kept: `moments` or `full`
    readiness   of standbys: `held`, `warm` or `idle`
    wait_s      seconds a recovery waits for a machine when no standby is left
    shutdown_s  from SIGTERM to SIGKILL for workers
    worker      another worker program, for tests; empty: the real one
    """

    argv: list[str]
    module: bool = False
    machines: int = 1
    standbys: int = 0
    nproc: int = 1
    comm: str = field(default_factory=communicators.default)
    restarts_max: int = 3
    record: str = "moments"
    readiness: str = "held"
    wait_s: int = 0
    log: LogSpec = field(default_factory=lambda: LogSpec(show=[0]))
    cwd: str = ""
    run_id: str = ""
    journal: Path | None = None
    api_port: int = 0
    token_file: Path | None = None
    run_dir: Path | None = None
    shutdown_s: float = 5.0
    role: str = "default"
    worker: tuple[str, ...] = ()


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


OnChange = Callable[[Notice, RunHandle], None]
OnReady = Callable[[RunHandle], None]


def run_job(
    options: RunOptions,
    *,
    on_change: OnChange | None = None,
    on_ready: OnReady | None = None,
    store: StoreProcess | None = None,
) -> RunResult:
    """Run a job to its end. Raises UserError if it could not begin.

    In the main thread SIGINT, SIGTERM and SIGHUP stop the job in order; a second one at once.
    store  one that was started beforehand, to save its start-up time; stopped here
    """
    return asyncio.run(_Hosting(options, on_change, on_ready).run(store))


class _Hosting:
    """One call of `run_job`."""

    def __init__(
        self, options: RunOptions, on_change: OnChange | None, on_ready: OnReady | None
    ) -> None:
        self._options = options
        self._on_change = on_change
        self._on_ready = on_ready
        self._server: Server | None = None
        self._handle: RunHandle | None = None
        self._stop_code: int | None = None
        self._worker_pids: set[int] = set()
        self._joined: set[MachineId] = set()

    async def run(self, store: StoreProcess | None) -> RunResult:
        async with AsyncExitStack() as stack:
            store = store or StoreProcess()
            stack.callback(store.stop)
            self._watch_store(stack, store)
            self._watch_signals(stack)
            adopt_orphans()
            return await self._run(stack, store)

    async def _run(self, stack: AsyncExitStack, store: StoreProcess) -> RunResult:
        options = self._options
        directory = RunDirectory.create(options.run_id, options.run_dir)
        stack.callback(directory.remove)
        token_file, token = _token(options, directory)
        control = bind("127.0.0.1:0", "The controller")
        stack.callback(control.close)
        api_socket = bind(f"127.0.0.1:{options.api_port}", "The API")
        stack.callback(api_socket.close)
        spec = _spec(options, directory.run_id, store.address())
        journal_path = options.journal or directory.path / "journal.sqlite"
        journal = Journal.create(journal_path, spec)
        stack.callback(journal.close)
        stack.callback(journal.checkpoint)
        self._server = Server(
            spec, token, journal, watch=self._notice, shutdown_s=options.shutdown_s
        )
        stack.push_async_callback(self._server.close)
        controller = f"127.0.0.1:{control.getsockname()[1]}"
        entry = _run_entry(directory, token_file, journal_path, api_socket.getsockname())
        entry = msgspec.structs.replace(entry, controller=controller, **_for_late_ones(options))
        self._handle = RunHandle(self._server, entry)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._failed)
        stack.callback(loop.set_exception_handler, None)
        stack.callback(self._leave_nothing, directory.run_id)
        machines = LocalMachines(_plan(options, directory, token_file), self._agent_ended)
        stack.push_async_callback(machines.stop)
        machines.start(controller)
        await self._server.start(control)
        api = Api(self._server, token)
        await api.start(api_socket)
        stack.push_async_callback(api.close)
        return await self._to_the_end(directory)

    async def _to_the_end(self, directory: RunDirectory) -> RunResult:
        server, handle = self._server, self._handle
        assert server is not None
        assert handle is not None
        directory.publish(handle.run)
        if self._on_ready is not None:
            self._on_ready(handle)
        if self._stop_code is not None:
            server.stop(self._stop_code, "stopped while it started")
        code, text = await server.ended
        return RunResult(code, text, server.job, directory.run_id, self._options.journal)

    def _notice(self, notice: Notice) -> None:
        if isinstance(notice, Happened):
            self._keep_pids(notice)
        if self._on_change is not None and self._handle is not None:
            self._on_change(notice, self._handle)

    def _keep_pids(self, happened: Happened) -> None:
        self._joined |= happened.after.machines.keys()
        if isinstance(happened.event, WorkerSaid) and isinstance(happened.event.fact, WorkerUp):
            self._worker_pids.add(happened.event.fact.pid)

    def _agent_ended(self, machine: MachineId, code: int, said: str) -> None:
        server = self._server
        if server is None or server.over:
            return
        if machine not in self._joined:
            why = f"The agent of {machine} ended before it had joined ({code}).\n{said}"
            server.stop(1, why)
        elif code > 1 or "Traceback" in said:
            server.note(f"the agent of {machine} ended ({code}): {said}", loud=True)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised: the job ends, it does not limp on."""
        error = context.get("exception") or RuntimeError(context["message"])
        if self._server is not None:
            self._server.failed(error)

    def _watch_store(self, stack: AsyncExitStack, store: StoreProcess) -> None:
        """Without the store no group can be made again: say so now, not at the next loss."""
        pidfd = os.pidfd_open(store.pid)
        stack.callback(os.close, pidfd)
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(pidfd)
            if self._server is not None:
                self._server.stop(1, _STORE_ENDED)

        loop.add_reader(pidfd, ended)
        stack.callback(loop.remove_reader, pidfd)

    def _watch_signals(self, stack: AsyncExitStack) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        for number, code in STOP_SIGNALS.items():
            loop.add_signal_handler(number, partial(self._signalled, number.name, code))
            stack.callback(loop.remove_signal_handler, number)

    def _signalled(self, name: str, code: int) -> None:
        again = self._stop_code is not None
        self._stop_code = self._stop_code or code
        if self._server is None:
            return
        if again:
            self._server.kill_all()
        else:
            self._server.stop(code, f"stopped by {name}")

    def _leave_nothing(self, run_id: str) -> None:
        kill_descendants(run_id)
        reap(self._worker_pids)


def _token(options: RunOptions, directory: RunDirectory) -> tuple[Path, bytes]:
    if options.token_file is None:
        return directory.token_file, directory.write_token()
    try:
        token = options.token_file.read_bytes().strip()
    except OSError as error:
        raise UserError(
            f"The token file {options.token_file} cannot be read: {error.strerror}.",
            means="Nothing was started.",
            do="Leave --token-file away to have one made.",
        ) from error
    if len(token) < TOKEN_BYTES_MIN:
        raise UserError(
            f"The token in {options.token_file} is shorter than {TOKEN_BYTES_MIN} bytes.",
            means="Nothing was started: it could be guessed.",
            do="Leave --token-file away to have one made.",
        )
    return options.token_file.resolve(), token


def _spec(options: RunOptions, run_id: str, store: str) -> JobSpec:
    return JobSpec(
        run_id=run_id,
        argv=options.argv,
        module=options.module,
        machines=options.machines,
        standbys=options.standbys,
        nproc=options.nproc,
        store=store,
        comm=options.comm,
        restarts_max=options.restarts_max,
        record=options.record,
        readiness=options.readiness,
        wait_s=options.wait_s,
        log=options.log,
        cwd=options.cwd or str(Path.cwd()),
    )


def _for_late_ones(options: RunOptions) -> dict[str, Any]:
    """What a machine that arrives later is started with, as the first ones were."""
    return {
        "nproc": options.nproc,
        "role": options.role,
        "shutdown_s": options.shutdown_s,
        "worker": options.worker,
    }


def _plan(options: RunOptions, directory: RunDirectory, token_file: Path) -> LocalPlan:
    return LocalPlan(
        run_id=directory.run_id,
        machines=options.machines,
        standbys=options.standbys,
        nproc=options.nproc,
        directory=directory.path,
        token_file=token_file,
        role=options.role,
        shutdown_s=options.shutdown_s,
        worker=options.worker,
    )


def _run_entry(
    directory: RunDirectory, token_file: Path, journal: Path, api: tuple[str, int]
) -> Run:
    started = process_started(os.getpid())
    assert started is not None
    return Run(
        run_id=directory.run_id,
        api_url=f"http://{api[0]}:{api[1]}",
        host=socket.gethostname(),
        pid=os.getpid(),
        started=started,
        directory=str(directory.path),
        token_file=str(token_file),
        journal=str(journal.resolve()),
    )
