# SPDX-License-Identifier: Apache-2.0
"""The workers of this machine, together: started, watched, asked, and ended.

One that ends because we ended it is no news; of any other the controller learns how, after all that
it had to say.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from trainmover import ownership
from trainmover.agent.config import AgentConfig
from trainmover.agent.decide import Place, place_after
from trainmover.agent.interfaces import interface_of
from trainmover.agent.socket_folder import make_socket_folder
from trainmover.agent.together import WAIT_S, Together
from trainmover.agent.workers.births import Births
from trainmover.agent.workers.environment import (
    LAST_WORDS,
    PULSE,
    STACKS,
    Setting,
    worker_environment,
)
from trainmover.agent.workers.printing import Printing
from trainmover.agent.workers.processes import Listener, Worker, start_worker
from trainmover.agent.workers.stacks import take_stack
from trainmover.agent.workers.states import Changed, States, out_of_memory_kills
from trainmover.errors import ProtocolError
from trainmover.protocol.deadlines import BEAT_S
from trainmover.protocol.framing import frame
from trainmover.protocol.messages import (
    AgentFact,
    EndWorker,
    FromWorker,
    JobSpec,
    KeepTold,
    Order,
    Output,
    Stack,
    StoreAt,
    Terminate,
    Unwritten,
    WorkerExited,
    WorkerState,
    encode,
    joint_in,
)

LAST_WORDS_MAX = 300
ENDED_FROM_OUTSIDE = (0, -signal.SIGKILL, -signal.SIGTERM)


class Reporter(Protocol):
    """Who hears of the workers. `say` counts and is not lost, `tell` is said by the way."""

    def say(self, fact: AgentFact, /) -> None: ...

    def tell(self, fact: Output | Unwritten, /) -> None: ...

    def clogged(self) -> bool: ...


class Crew:
    """directory: private to this machine; address: by which others reach this machine.

    torch  where workers reach torch's store
    """

    def __init__(
        self,
        config: AgentConfig,
        directory: Path,
        address: str,
        reporter: Reporter,
        heed: Callable[[bytes], object] = lambda lines: None,
    ) -> None:
        self._config = config
        self._directory = directory
        self._address = address
        self._up = reporter
        self._heed = heed
        self._spec: JobSpec | None = None
        self.torch = ""
        self._place = Place()
        self._restarts = 0
        self._keeps_told = False
        self._births = None if config.fork_server is None else Births(config.fork_server)
        self._workers: dict[int, Worker] = {}
        self._leaving: set[Worker] = set()
        self._when_gone: Callable[[], None] | None = None
        self._together = Together(config.nproc)
        self._printing = Printing(config.machine, reporter.tell, reporter.clogged)
        self._states = States(lambda local_rank: self._directory / str(local_rank) / PULSE)
        self._notes: dict[int, str] = {}
        self._memory_kills = out_of_memory_kills()
        self._sockets: Path | None = None

    @property
    def spec(self) -> JobSpec | None:
        """Of the job, once it is known."""
        return self._spec

    def keep(self, spec: JobSpec, torch: str) -> None:
        """What workers that start from now on are told of the job. torch: where they reach torch's
        store."""
        self._spec, self.torch = spec, torch
        ownership.write_file(self._spec_file, msgspec.msgpack.encode(spec))

    def stores_moved(self, order: StoreAt) -> None:
        """For workers that start later; the others are told by the order itself."""
        self.keep(msgspec.structs.replace(self._known_spec, store=order.address), order.torch)

    # --- all of them ---

    def start(self, restarts: int) -> None:
        """End those there are at once, and start anew when they are gone. restarts: so far."""
        self._restarts = restarts
        self.end(signal.SIGKILL, then=self._start)

    def hand(self, payload: bytes) -> None:
        """An order, as it came."""
        framed = frame(payload)
        for worker in self._workers.values():
            worker.send_framed(framed)

    def keep_told(self, keep: bool) -> None:
        """What they tell may be lost with this machine, or is safe again. Those that start later
        hear it first."""
        self._keeps_told = keep
        self.hand(encode(KeepTold(keep=keep)))

    def place(self, order: Order) -> None:
        """Before the workers hear of it: what they print afterwards belongs to the new place."""
        place = place_after(self._place, order)
        if place != self._place:
            for worker in self._workers.values():
                worker.drain_output()
            self._place = place

    @property
    def standing(self) -> Place:
        """Where its workers stand."""
        return self._place

    @property
    def has_ranks(self) -> bool:
        """Whether its workers run for real, or are about to."""
        return self._place.live or self._place.bound

    def signal(self, number: int) -> None:
        for worker in self._workers.values():
            worker.signal(number)

    def end(self, number: int, *, then: Callable[[], None]) -> None:
        """Signal all workers; `then` is called when the last is gone. The newest call counts."""
        self._when_gone = then
        self._say_together()
        for worker in self._workers.values():
            worker.mute()
            self._leaving.add(worker)
        if number == signal.SIGTERM:
            self.hand(encode(Terminate()))
        self.signal(number)
        self._go_on_when_gone()

    def look(self) -> None:
        """One beat: tell whose state has changed."""
        pids = {local: worker.pid for local, worker in self._workers.items() if worker.pid}
        for changed in self._states.look(pids, live=self._place.live):
            self._state_changed(changed)

    def flush(self) -> None:
        """Hand on what they have printed."""
        self._printing.flush()

    def close(self) -> None:
        """After the last is gone: what they printed is shown and written, their sockets go."""
        self._printing.close()
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)

    # --- one of them ---

    def end_one(self, order: EndWorker) -> None:
        """Ask where it stands, then kill it."""
        worker = self._workers.get(order.local_rank)
        if worker is None or worker.pid != order.pid or worker in self._leaving:
            return

        def told(text: str) -> None:
            self._say(Stack(local_rank=order.local_rank, pid=order.pid, text=text))
            if self._workers.get(order.local_rank) is worker:
                worker.signal(signal.SIGKILL)

        take_stack(worker, self._directory / str(order.local_rank) / STACKS, told)

    def _start(self) -> None:
        self._place = Place()
        for local_rank in range(self._known_spec.nproc):
            (self._directory / str(local_rank)).mkdir(exist_ok=True, mode=0o700)
            self._workers[local_rank] = self._start_one(local_rank)
        if self._keeps_told:
            self.keep_told(True)

    def _socket_folder(self) -> Path:
        if self._sockets is None:
            self._sockets = make_socket_folder(self._directory)
        return self._sockets

    def _start_one(self, local_rank: int) -> Worker:
        spec, config = self._known_spec, self._config
        setting = Setting(
            machine=config.machine,
            role=config.role,
            token_file=str(config.token_file.resolve()),
            spec_file=str(self._spec_file),
            directory=str(self._directory),
            sockets=str(self._socket_folder()),
            address=self._address,
            torch=self.torch,
            agent_pid=os.getpid(),
            tls=config.tls,
            interface=interface_of(self._address),
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
            fact=partial(self._said, local_rank),
            lines=partial(self._printed, local_rank),
            exited=partial(self._exited, local_rank),
        )
        return start_worker(config.worker, spec.cwd, environment, listener, self._births)

    def _said(self, local_rank: int, payload: bytes) -> None:
        fact = joint_in(payload)
        if fact is None:
            self._say(FromWorker(local_rank=local_rank, payload=msgspec.Raw(payload)))
            return
        first = not self._together.waits
        for given in self._together.take(fact):
            self._up.say(given)
        if first and self._together.waits:
            asyncio.get_running_loop().call_later(WAIT_S, self._say_together)

    def _say(self, fact: FromWorker | WorkerExited | WorkerState | Stack) -> None:
        """Behind the steps that came before it."""
        self._say_together()
        self._up.say(fact)

    def _say_together(self) -> None:
        for given in self._together.given():
            self._up.say(given)

    def _printed(self, local_rank: int, stream: str, lines: bytes) -> None:
        if stream == "stderr":
            self._heed(lines)
        spec, place = self._known_spec, self._place
        self._printing.lines(spec, place, self._restarts, local_rank, stream, lines)

    def _exited(self, local_rank: int, code: int) -> None:
        worker = self._workers.pop(local_rank)
        ours = worker in self._leaving
        self._leaving.discard(worker)
        self._printing.ended(local_rank, show=not ours and code not in ENDED_FROM_OUTSIDE)
        if not ours:
            note = self._note_on(local_rank, worker.pid, code)
            self._say(WorkerExited(local_rank=local_rank, pid=worker.pid, code=code, note=note))
        self._go_on_when_gone()

    def _state_changed(self, changed: Changed) -> None:
        worker = self._workers[changed.local_rank]
        if worker in self._leaving:
            return
        if changed.state == "headless":
            self._notes[worker.pid] = "its main thread was gone"
            worker.signal(signal.SIGKILL)
            return
        since_ms = round(changed.beats * BEAT_S * 1000)
        state = WorkerState(
            local_rank=changed.local_rank, pid=changed.pid, state=changed.state, since_ms=since_ms
        )
        self._say(state)

    def _note_on(self, local_rank: int, pid: int, code: int) -> str:
        """What else is known of the end of a worker."""
        note = self._last_words(local_rank) or self._notes.pop(pid, "")
        before, self._memory_kills = self._memory_kills, out_of_memory_kills()
        if code == -signal.SIGKILL and self._memory_kills > before:
            return ", ".join(filter(None, (note, "the kernel was out of memory")))
        return note

    def _last_words(self, local_rank: int) -> str:
        """Read, once, why a worker has ended itself; "" if it has not."""
        file = self._directory / str(local_rank) / LAST_WORDS
        try:
            words = file.read_text(errors="replace")[:LAST_WORDS_MAX]
            file.unlink()
        except OSError:
            return ""
        return words

    def _go_on_when_gone(self) -> None:
        if not self._workers and self._when_gone is not None:
            then, self._when_gone = self._when_gone, None
            then()

    @property
    def _spec_file(self) -> Path:
        return self._directory / "spec.msgpack"

    @property
    def _known_spec(self) -> JobSpec:
        if self._spec is None:
            raise ProtocolError(
                "The controller gave an order before its welcome.",
                means="This machine leaves the job.",
                do="Both ends must run the same version of trainmover.",
            )
        return self._spec
