"""The agent's shell: one loop that relays, watches and obeys.

    controller --orders--> link --every worker order--> workers
    controller <--facts--- link <--FromWorker---------- workers

Without a controller the workers run on, while `uplink` dials for it. A machine that was given up in
the meantime ends them at once, so that it cannot go on training in an old epoch.
"""

import asyncio
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from trainmover.agent.births import Births
from trainmover.agent.decide import Place, place_after, shown_as, written
from trainmover.agent.environment import PULSE, STACKS, Setting, worker_environment
from trainmover.agent.link import dial
from trainmover.agent.output import LogFiles, ScreenBatch
from trainmover.agent.reach import reached
from trainmover.agent.stacks import take_stack
from trainmover.agent.states import Changed, States, out_of_memory_kills
from trainmover.agent.uplink import Ear, Uplink
from trainmover.agent.workers import Listener, Worker, start_worker
from trainmover.errors import PeerLost, ProtocolError, TrainmoverError
from trainmover.ids import MachineId, Rank
from trainmover.lifeline import adopt_orphans, kill_descendants
from trainmover.nursery import Nursery
from trainmover.protocol.framing import frame
from trainmover.protocol.messages import (
    PROTOCOL,
    CutComplete,
    Die,
    EndWorker,
    FromWorker,
    Heartbeat,
    Hello,
    Interrupt,
    JobSpec,
    KeepTold,
    Order,
    Output,
    Probe,
    Reached,
    Refused,
    Shutdown,
    Stack,
    StartWorkers,
    StoreAt,
    Switch,
    VaultHeld,
    Welcome,
    WorkerExited,
    WorkerOrder,
    WorkerState,
    encode,
)
from trainmover.state.vault import Vault, address_of, serve
from trainmover.token_file import read_token
from trainmover.version import VERSION

HEARTBEAT_S = 0.2
VAULT_BYTES_MAX = 2 * 1024**3
LAST_WORDS_BYTES = 4096
"""Of stderr that was not to be shown, kept in case the worker ends by a fault of its own."""
NO_RANK = Rank(-1)
"""Output of a worker that is no rank yet, or not one that is shown; the lines say whose."""
ENDED_FROM_OUTSIDE = (0, -signal.SIGKILL, -signal.SIGTERM)
WORKER_COMMAND = (sys.executable, "-u", "-m", "trainmover.worker")


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """What the command line said. directory: private to this machine; None: a fresh one.

    controller_s  how long the controller may be away
    rack     what this machine would be lost together with; "": not known
    nursery  came with us; workers are forked from it, not executed
    """

    controller: str
    machine: MachineId
    nproc: int
    standby: bool
    token_file: Path
    directory: Path | None = None
    role: str = "default"
    shutdown_s: float = 5.0
    controller_s: float = 60.0
    worker: tuple[str, ...] = WORKER_COMMAND
    rack: str = ""
    nursery: Nursery | None = None


async def run_agent(config: AgentConfig) -> None:
    """Serve until the job is over. Raises a TrainmoverError if it ended in any other way."""
    loop = asyncio.get_running_loop()
    token = read_token(config.token_file)
    adopt_orphans()
    sock = await dial(config.controller, token)
    vault = Vault(VAULT_BYTES_MAX)
    vault_server = await serve(vault, token, bind=sock.getsockname()[0])
    directory = config.directory or Path(tempfile.mkdtemp(prefix=f"trainmover-{config.machine}-"))
    agent = Agent(config, vault, address_of(vault_server), directory)
    loop.set_exception_handler(agent.failed)
    loop.add_signal_handler(signal.SIGTERM, partial(agent.end, kill=False))
    try:
        await agent.join(sock, token)
        await agent.over
    finally:
        vault_server.close()
        if agent.run_id:
            kill_descendants(agent.run_id, os.environ.get("TRAINMOVER_NURSERY", ""))
        shutil.rmtree(directory, ignore_errors=True)


class Agent:
    """`over` is done when the agent has ended; it carries the error if there was one."""

    def __init__(self, config: AgentConfig, vault: Vault, vault_address: str, directory: Path):
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._config = config
        self._vault = vault
        self._vault_address = vault_address
        self._directory = directory.resolve()
        self._spec: JobSpec | None = None
        self._place = Place()
        self._restarts = 0
        self._births = None if config.nursery is None else Births(config.nursery)
        self._workers: dict[int, Worker] = {}
        self._leaving: set[Worker] = set()
        self._when_gone: Callable[[], None] | None = None
        self._error: TrainmoverError | None = None
        self._ending = False
        ear = Ear(
            hello=self._hello,
            obey=self._take,
            refused=self._refused,
            away=self._controller_away,
            lost=self._give_up,
        )
        self._up = Uplink(config.machine, config.controller, config.controller_s, ear)
        self._screen = ScreenBatch(self._send_output, self._up.clogged)
        self._unshown: dict[int, bytes] = {}
        self._states = States(lambda local_rank: self._directory / str(local_rank) / PULSE)
        self._notes: dict[int, str] = {}
        self._memory_kills = out_of_memory_kills()
        self._probing: asyncio.Task[list[MachineId]] | None = None
        self._logs = LogFiles()

    @property
    def run_id(self) -> str:
        return self._spec.run_id if self._spec else ""

    async def join(self, sock: socket.socket, token: bytes) -> None:
        """Begin to serve the controller at the other end of a proved connection."""
        await self._up.join(sock, token)
        self._beat()

    def _hello(self, incarnation: str) -> Hello:
        """One that was in the job before comes as a standby: its ranks live elsewhere."""
        config = self._config
        return Hello(
            machine=config.machine,
            version=VERSION,
            protocol=PROTOCOL,
            nproc=config.nproc,
            standby=config.standby or self._spec is not None,
            vault=self._vault_address,
            host=socket.gethostname(),
            pid=os.getpid(),
            incarnation=incarnation,
            rack=config.rack,
        )

    def failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback of the loop raised: the agent ends, it does not limp on."""
        error = context.get("exception")
        if not isinstance(error, TrainmoverError):
            loop.default_exception_handler(context)
            error = PeerLost(
                f"The agent of {self._config.machine} failed: {error or context['message']}.",
                means="Its workers are ended; the job treats the machine as lost.",
                do="Report the traceback above.",
            )
        self._give_up(error)

    def end(self, *, kill: bool) -> None:
        """End the workers, then this agent. Asked twice, it ends at once."""
        kill = kill or self._ending
        self._ending = True
        self._up.dial_no_more()
        self._end_workers(signal.SIGKILL if kill else signal.SIGTERM, then=self._leave)
        if not kill:
            grace_s = self._config.shutdown_s
            asyncio.get_running_loop().call_later(grace_s, self._signal_all, signal.SIGKILL)

    # --- orders ---

    def _take(self, payload: bytes, order: Order) -> None:
        if isinstance(order, WorkerOrder):
            self._hand_out(payload, order)
        else:
            self._obey(order)

    def _hand_out(self, payload: bytes, order: WorkerOrder) -> None:
        self._take_place(order)
        if isinstance(order, CutComplete):
            self._vault.drop_snapshots(before=order.step)
        elif isinstance(order, Switch) and order.back:
            self._vault.drop_snapshots_after(order.committed)
        elif isinstance(order, StoreAt):  # For workers that start later; the others are told.
            self._keep(msgspec.structs.replace(self._known_spec, store=order.address))
        elif isinstance(order, Interrupt):
            self._vault.fence(order.epoch)
        framed = frame(payload)
        for worker in self._workers.values():
            worker.send_framed(framed)
        if isinstance(order, Interrupt):
            held = {Rank(r): list(steps) for r, steps in self._vault.records_held().items()}
            self._up.say(VaultHeld(epoch=order.epoch, records=held))  # type: ignore[arg-type]

    def _controller_away(self, away: bool) -> None:
        order = frame(encode(KeepTold(keep=away)))
        for worker in self._workers.values():
            worker.send_framed(order)

    def _take_place(self, order: WorkerOrder) -> None:
        """Before the workers hear of it: what they print afterwards belongs to the new place."""
        place = place_after(self._place, order)
        if place != self._place:
            for worker in self._workers.values():
                worker.drain_output()
            self._place = place

    def _obey(self, order: Order) -> None:
        match order:
            case Welcome(spec=spec):
                self._directory.mkdir(parents=True, exist_ok=True)
                self._keep(spec)
            case StartWorkers():
                self._restarts = order.restarts
                self._end_workers(signal.SIGKILL, then=self._start_workers)
            case EndWorker():
                self._end_worker(order)
            case Probe():
                self._probe(order)
            case Die():
                self._signal_all(signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            case Shutdown(kill=kill):
                self.end(kill=kill)

    def _refused(self, refused: Refused) -> None:
        """The machine was given up for lost: nothing of what it is may go on."""
        if self._ending:
            return
        self._screen.flush()
        self._vault.clear()
        self._restarts = 0
        begin_anew = partial(self._up.begin_anew, refused.retry_s or 0.0)
        self._end_workers(signal.SIGKILL, then=begin_anew)

    # --- workers ---

    def _keep(self, spec: JobSpec) -> None:
        self._spec = spec
        self._spec_file.write_bytes(msgspec.msgpack.encode(spec))

    @property
    def _spec_file(self) -> Path:
        return self._directory / "spec.msgpack"

    def _start_workers(self) -> None:
        self._place = Place()
        for local_rank in range(self._known_spec.nproc):
            (self._directory / str(local_rank)).mkdir(exist_ok=True)
            self._workers[local_rank] = self._start_worker(local_rank)

    def _start_worker(self, local_rank: int) -> Worker:
        spec, config = self._known_spec, self._config
        setting = Setting(
            machine=config.machine,
            role=config.role,
            token_file=str(config.token_file.resolve()),
            spec_file=str(self._spec_file),
            directory=str(self._directory),
            vault=self._vault_address,
            agent_pid=os.getpid(),
        )

        def environment(fd: int) -> dict[str, str]:
            return worker_environment(
                os.environ,
                spec,
                setting,
                local_rank=local_rank,
                restarts=self._restarts,
                control_fd=fd,
            )

        listener = Listener(
            fact=partial(self._worker_said, local_rank),
            lines=partial(self._worker_printed, local_rank),
            exited=partial(self._worker_exited, local_rank),
        )
        return start_worker(config.worker, spec.cwd, environment, listener, self._births)

    def _worker_said(self, local_rank: int, payload: bytes) -> None:
        self._up.say(FromWorker(local_rank=local_rank, payload=msgspec.Raw(payload)))

    def _worker_printed(self, local_rank: int, stream: str, lines: bytes) -> None:
        spec = self._known_spec
        if written(spec.log, local_rank, stream):
            assert spec.log.log_dir is not None
            attempt = Path(spec.log.log_dir) / spec.run_id / f"attempt_{self._restarts}"
            folder = attempt / self._config.machine / str(local_rank)
            self._logs.append(folder / f"{stream}.log", lines)
        rank = shown_as(self._place, spec.log, spec.nproc, local_rank, stream)
        if rank is not None:
            self._screen.add(rank, stream, lines)
        elif stream == "stderr":
            kept = self._unshown.get(local_rank, b"") + lines
            self._unshown[local_rank] = kept[-LAST_WORDS_BYTES:]

    def _worker_exited(self, local_rank: int, code: int) -> None:
        worker = self._workers.pop(local_rank)
        last_words = self._unshown.pop(local_rank, b"")
        self._screen.flush()
        if worker in self._leaving:
            self._leaving.discard(worker)
        else:
            if last_words and code not in ENDED_FROM_OUTSIDE:
                name = f"{self._config.machine} worker {local_rank}"
                lines = last_words.decode(errors="replace").splitlines()
                text = "".join(f"{name}: {line}\n" for line in lines)
                self._send_output(NO_RANK, "stderr", text)
            note = self._note_on(worker.pid, code)
            self._up.say(WorkerExited(local_rank=local_rank, pid=worker.pid, code=code, note=note))
        self._go_on_when_gone()

    def _end_workers(self, number: int, *, then: Callable[[], None]) -> None:
        """Signal all workers; `then` is called when the last is gone. The newest call counts."""
        self._when_gone = then
        for worker in self._workers.values():
            worker.mute()
            self._leaving.add(worker)
        self._signal_all(number)
        self._go_on_when_gone()

    def _state_changed(self, changed: Changed) -> None:
        worker = self._workers[changed.local_rank]
        if worker in self._leaving:
            return
        if changed.state == "headless":
            self._notes[worker.pid] = "its main thread was gone"
            worker.signal(signal.SIGKILL)
            return
        since_ms = round(changed.beats * HEARTBEAT_S * 1000)
        state = WorkerState(
            local_rank=changed.local_rank, pid=changed.pid, state=changed.state, since_ms=since_ms
        )
        self._up.say(state)

    def _end_worker(self, order: EndWorker) -> None:
        """Ask where it stands, then kill it."""
        worker = self._workers.get(order.local_rank)
        if worker is None or worker.pid != order.pid or worker in self._leaving:
            return

        def told(text: str) -> None:
            self._up.say(Stack(local_rank=order.local_rank, pid=order.pid, text=text))
            if self._workers.get(order.local_rank) is worker:
                worker.signal(signal.SIGKILL)

        take_stack(worker, self._directory / str(order.local_rank) / STACKS, told)

    def _probe(self, order: Probe) -> None:
        def answer(done: asyncio.Task[list[MachineId]]) -> None:
            if not done.cancelled():
                self._up.say(Reached(number=order.number, machines=done.result()))

        self._probing = asyncio.get_running_loop().create_task(reached(order.vaults))
        self._probing.add_done_callback(answer)

    def _note_on(self, pid: int, code: int) -> str:
        """What else is known of the end of a worker."""
        before, self._memory_kills = self._memory_kills, out_of_memory_kills()
        if code == -signal.SIGKILL and self._memory_kills > before:
            return "the kernel was out of memory"
        return self._notes.pop(pid, "")

    def _signal_all(self, number: int) -> None:
        for worker in self._workers.values():
            worker.signal(number)

    def _go_on_when_gone(self) -> None:
        if not self._workers and self._when_gone is not None:
            then, self._when_gone = self._when_gone, None
            then()

    # --- the link ---

    @property
    def _known_spec(self) -> JobSpec:
        if self._spec is None:
            raise ProtocolError(
                "The controller gave an order before its welcome.",
                means="This machine leaves the job.",
                do="Both ends must run the same version of trainmover.",
            )
        return self._spec

    def _send_output(self, rank: Rank, stream: str, text: str) -> None:
        self._up.tell(Output(rank=rank, stream=stream, text=text))

    def _beat(self) -> None:
        vault = self._vault
        self._up.tell(Heartbeat(vault_bytes=vault.bytes_held, vault_max=vault.bytes_max))
        pids = {local: worker.pid for local, worker in self._workers.items() if worker.pid}
        for changed in self._states.look(pids, live=self._place.live):
            self._state_changed(changed)
        asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat)

    def _give_up(self, error: TrainmoverError) -> None:
        self._error = self._error or error
        self.end(kill=True)

    def _leave(self) -> None:
        self._screen.flush()
        self._logs.close()
        self._up.close()
        self._set_over()

    def _set_over(self) -> None:
        if self.over.done():
            return
        if self._error is not None:
            self.over.set_exception(self._error)
        else:
            self.over.set_result(None)
