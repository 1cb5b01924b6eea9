# SPDX-License-Identifier: Apache-2.0
"""The agent's shell: one loop that relays and obeys.

    controller --orders--> link --every worker order--> workers
    controller <--facts--- link <--FromWorker---------- workers

Without a controller the workers run on, while `uplink` dials for it. A machine that was given up in
the meantime ends them at once, so that it cannot go on training in an old epoch.
"""

import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmover import ownership
from trainmover.agent.config import AgentConfig
from trainmover.agent.decide import in_words
from trainmover.agent.dial import Dialled, dial_first
from trainmover.agent.engine import Engine
from trainmover.agent.examiner import Examiner
from trainmover.agent.flags import NOTICE_S_MAX
from trainmover.agent.folder import make_folder
from trainmover.agent.notice import NoticeFile
from trainmover.agent.relaying.fetch import Fetcher
from trainmover.agent.relaying.relay import Relay
from trainmover.agent.signs import Signs, memory
from trainmover.agent.store_way import StoreWays
from trainmover.agent.uplink import Ear, Uplink
from trainmover.agent.workers.crew import Crew
from trainmover.descriptors import Shortage
from trainmover.errors import PeerLost, TrainmoverError
from trainmover.ids import MachineId, Rank
from trainmover.lifeline import adopt_orphans, kill_descendants, when_ended
from trainmover.listeners.dial import parse_address
from trainmover.listeners.reach import REACH_S, reached
from trainmover.protocol.deadlines import ANSWER_S, BEAT_S, STOP_S, STOP_SEEN_S
from trainmover.protocol.messages import (
    PROTOCOL,
    BeRelay,
    CutComplete,
    Die,
    EndWorker,
    Examine,
    FetchBehind,
    Found,
    GoBehind,
    Heartbeat,
    Hello,
    Interrupt,
    KeepSnapshots,
    Leaving,
    LookFor,
    Order,
    Probe,
    Reached,
    Refused,
    Shutdown,
    StartWorkers,
    StoreAt,
    Switch,
    VaultHeld,
    Welcome,
    WorkerOrder,
    encode,
)
from trainmover.state.vault import Vault, address_of, serve
from trainmover.state.vault.wire import ComeBehind
from trainmover.token_file import read_token
from trainmover.version import VERSION

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

VAULT_BYTES_MAX = 2 * 1024**3


async def run_agent(config: AgentConfig) -> None:
    """Serve until the job is over. Raises a TrainmoverError if it ended in any other way."""
    loop = asyncio.get_running_loop()
    token = read_token(config.token_file)
    adopt_orphans()
    tls = None if config.tls is None else config.tls.read()
    dialled = await dial_first(config.controller, token, tls, me=config.machine)
    vault = Vault(VAULT_BYTES_MAX)
    address = dialled.transport.get_extra_info("sockname")[0]  # By which others can reach it, too.
    vault_server = await serve(vault, token, bind=address, tls=tls)
    directory = make_folder(config)
    stores = StoreWays(token, tls)
    agent = Agent(config, vault, address_of(vault_server), directory, stores, token, tls)
    vault_server.come_behind = agent.come_behind
    loop.set_exception_handler(agent.failed)
    loop.add_signal_handler(signal.SIGTERM, agent.terminated)
    loop.add_signal_handler(signal.SIGINT, agent.interrupted)
    loop.add_signal_handler(signal.SIGUSR1, agent.will_be_gone)
    if config.run is not None:
        agent.end_with(config.run)
    try:
        agent.join(dialled, token)
        await agent.over
    finally:
        vault_server.close()
        if agent.run_id:
            kill_descendants(agent.run_id, os.environ.get("TRAINMOVER_FORK_SERVER", ""))
        ownership.remove_marked(directory)


class Agent:
    """`over` is done when the agent has ended; it carries the error if there was one."""

    def __init__(
        self,
        config: AgentConfig,
        vault: Vault,
        vault_address: str,
        directory: Path,
        stores: StoreWays,
        token: bytes,
        tls: "Tls | None" = None,
    ) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._config = config
        self._vault = vault
        self._vault_address = vault_address
        self._stores = stores
        self._tls = tls
        self._directory = directory.resolve()
        self._shortage = Shortage(f"the agent of {config.machine}")
        self._error: TrainmoverError | None = None
        self._ending = self._gives_up_ranks = self._is_dismissed = False
        self._is_terminated = False
        self._stop_seen_s = -math.inf
        self._notice = NoticeFile(config.notice_file, config.notice_s)
        self._engine = self._asked_engine()
        ear = Ear(
            hello=self._hello,
            obey=self._take,
            refused=self._refused,
            away=self._keep_told,
            lost=self._give_up,
        )
        self._up = Uplink(config.machine, config.controller, config.controller_s, ear)
        self._signs = Signs(config.kernel_log, self._up.say)
        address = parse_address(vault_address)[0]
        self._crew = Crew(config, self._directory, address, self._up, self._signs.printed)
        self._relay = Relay(config.machine, config.controller, address, token, tls)
        self._examiner = Examiner(config, self._directory)
        self._fetcher = Fetcher(config.machine, token, tls)
        self._dialling: set[asyncio.Task[list[MachineId]]] = set()

    @property
    def run_id(self) -> str:
        return self._crew.spec.run_id if self._crew.spec else ""

    def _asked_engine(self) -> Engine | None:
        """Whoever owns this machine, where that is an engine that can be asked."""
        config, loop = self._config, asyncio.get_running_loop()
        if not config.notice_from:
            return None

        def tell(left_s: float) -> None:
            with contextlib.suppress(RuntimeError):  # The agent has ended meanwhile.
                loop.call_soon_threadsafe(self.will_be_gone, left_s)

        return Engine(config.notice_from, config.notice_s, tell)

    def join(self, dialled: Dialled, token: bytes) -> None:
        """Begin to serve the controller at the other end of a proved connection."""
        self._up.join(dialled, token, self._tls)
        self._beat()

    def _hello(self, incarnation: str) -> Hello:
        """One that was in the job before comes as a standby: its ranks live elsewhere."""
        config = self._config
        return Hello(
            machine=config.machine,
            version=VERSION,
            protocol=PROTOCOL,
            nproc=config.nproc,
            standby=config.standby or self._crew.spec is not None,
            vault=self._vault_address,
            host=socket.gethostname(),
            pid=os.getpid(),
            incarnation=incarnation,
            rack=config.rack,
        )

    def end_with(self, run: int) -> None:
        """End when process `run` does: with it the job is over, and no controller comes again."""
        try:
            when_ended(asyncio.get_running_loop(), run, self._run_ended)
        except ProcessLookupError:
            self._run_ended()

    def _run_ended(self) -> None:
        if self._ending:
            return
        gone = PeerLost(
            f"The process that {self._config.machine}'s run lived in has ended.",
            means="The job is over; the workers of this machine are ended.",
            do="Go on from its checkpoints, if it wrote any: trainmover run --resume DIR",
        )
        self._give_up(gone)

    def failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback of the loop raised: the agent ends, it does not limp on."""
        if self._shortage.explains(context):
            return
        error = context.get("exception")
        if not isinstance(error, TrainmoverError):
            loop.default_exception_handler(context)
            error = PeerLost(
                f"The agent of {self._config.machine} failed: {error or context['message']}.",
                means="Its workers are ended; the job treats the machine as lost.",
                do="Report the traceback above.",
            )
        self._give_up(error)

    def will_be_gone(self, left_s: float | None = None) -> None:
        """Whoever owns this machine takes it away, in so many seconds; None: as configured."""
        left_s = self._config.notice_s if left_s is None else min(left_s, NOTICE_S_MAX)
        self._up.say(Leaving(left_ms=round(1000 * left_s)))

    def terminated(self) -> None:
        """Take a SIGTERM. It may have gone to every process of the run: then the controller ends
        this agent, after a last checkpoint. A second one ends it at once."""
        if self._is_terminated:
            self.end(kill=False)
            return
        self._is_terminated = True
        if self._config.alone:
            self._end_alone()
            return
        asyncio.get_running_loop().call_later(STOP_SEEN_S, self._end_unless_stopped)

    def interrupted(self) -> None:
        """Take a SIGINT, by which a run ends its own machines: wait for nothing but the workers."""
        self.end(kill=False)

    def _end_unless_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._stop_seen_s <= 2 * STOP_SEEN_S:  # Before the signal or after it.
            loop.call_later(STOP_S, self._end_alone)
        else:
            self._end_alone()

    def _end_alone(self) -> None:
        """End in order, of all machines this one: its ranks go to a standby first, if it has any,
        for as long as a notice leaves."""
        if self._ending:
            return
        if self._config.run is not None or not self._crew.has_ranks:
            self.end(kill=False)
            return
        self._gives_up_ranks = True
        wait_s = max(self._config.notice_s - self._config.shutdown_s, 0.0)
        print(
            f"{self._config.machine} is to end: its ranks go to a standby first, for which it "
            f"waits up to {wait_s:g} s. A second SIGTERM ends it at once.",
            file=sys.stderr,
            flush=True,
        )
        self.will_be_gone()
        asyncio.get_running_loop().call_later(wait_s, self._end_in_order)

    def _end_in_order(self) -> None:
        if not self._ending:
            self.end(kill=False)

    def end(self, *, kill: bool) -> None:
        """End the workers, then this agent. Asked twice, it ends at once."""
        kill = kill or self._ending
        self._ending = True
        self._up.dial_no_more()
        if not self._is_dismissed:
            self._relay.close()
        self._crew.end(signal.SIGKILL if kill else signal.SIGTERM, then=self._leave)
        if not kill:
            grace_s = self._config.shutdown_s
            asyncio.get_running_loop().call_later(grace_s, self._crew.signal, signal.SIGKILL)

    # --- orders ---

    def _take(self, payload: bytes, order: Order) -> None:
        if isinstance(order, WorkerOrder):
            self._hand_out(payload, order)
        else:
            self._obey(order)

    def _hand_out(self, payload: bytes, order: WorkerOrder) -> None:
        before = self._crew.standing
        self._crew.place(order)
        self._tell(in_words(before, self._crew.standing, self._config.nproc))
        if isinstance(order, CutComplete):
            self._vault.drop_snapshots(before=order.step)
        elif isinstance(order, Switch) and order.back:
            self._vault.drop_snapshots_after(order.committed)
        elif isinstance(order, StoreAt):
            order = StoreAt(address=order.address, torch=self._stores.to(order.address))
            payload = encode(order)
            self._crew.stores_moved(order)
        elif isinstance(order, Interrupt):
            self._vault.fence(order.epoch)
        elif isinstance(order, KeepSnapshots) and order.now:
            self._stop_seen_s = asyncio.get_running_loop().time()  # So a stop begins, too.
        self._crew.hand(payload)
        if isinstance(order, Interrupt):
            held = {Rank(r): list(steps) for r, steps in self._vault.records_held().items()}
            self._up.say(VaultHeld(epoch=order.epoch, records=held))  # type: ignore[arg-type]
        if self._gives_up_ranks and not self._crew.has_ranks:
            self._end_in_order()

    def _tell(self, text: str) -> None:
        """Tell whoever has started this agent by hand; a run tells of its own machines itself."""
        if text and self._config.run is None:
            print(f"{self._config.machine}: {text}", flush=True)

    def _keep_told(self, keep: bool) -> None:
        self._crew.keep_told(keep)

    def _obey(self, order: Order) -> None:
        match order:
            case Welcome(spec=spec):
                if self._crew.spec is None:
                    self._tell(f"joined {spec.run_id}")
                self._up.lease(spec.patience_s)
                self._crew.keep(spec, torch=self._stores.to(spec.store))
            case StartWorkers():
                self._crew.start(order.restarts)
            case EndWorker():
                self._crew.end_one(order)
            case Probe():
                self._probe(order)
            case Examine():
                self._examiner.examine(order, self._up.say)
            case LookFor():
                self._look_for(order)
            case BeRelay():
                self._relay.begin(self._up.run, self._up.incarnation)
            case FetchBehind():
                self._fetcher.fetch(order)
            case Die():
                self._crew.signal(signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            case Shutdown(kill=kill):
                self._is_dismissed = not kill
                self._tell("given up" if kill else "let go: the job is over, or goes on without it")
                self.end(kill=kill)

    def come_behind(self, request: ComeBehind) -> None:
        """Have a neighbour carry what is said: the controller does not reach this machine."""
        relay = MachineId(request.relay)
        order = GoBehind(relay=relay, address=request.address, ticket=request.ticket)
        self._up.come_behind(order)

    def _refused(self, refused: Refused) -> None:
        """The machine was given up for lost: nothing of what it is may go on."""
        if self._ending:
            return
        self._crew.flush()
        self._vault.clear()
        self._relay.stop()
        begin_anew = partial(self._up.begin_anew, refused.retry_s or 0.0)
        self._crew.end(signal.SIGKILL, then=begin_anew)

    def _probe(self, order: Probe) -> None:
        def answer(machines: list[MachineId]) -> None:
            self._up.say(Reached(number=order.number, machines=machines))

        self._dial_all(order.vaults, REACH_S, answer)

    def _look_for(self, order: LookFor) -> None:
        def answer(machines: list[MachineId]) -> None:
            self._up.tell(Found(number=order.number, machines=machines))

        self._dial_all(order.vaults, ANSWER_S, answer)

    def _dial_all(
        self,
        vaults: Mapping[MachineId, str],
        within_s: float,
        answer: Callable[[list[MachineId]], None],
    ) -> None:
        def tell(done: asyncio.Task[list[MachineId]]) -> None:
            self._dialling.discard(done)
            if not done.cancelled():
                answer(done.result())

        task = asyncio.get_running_loop().create_task(reached(vaults, self._tls, within_s=within_s))
        self._dialling.add(task)
        task.add_done_callback(tell)

    # --- the link ---

    def _beat(self) -> None:
        vault = self._vault
        held, most = vault.bytes_held, vault.bytes_max
        free, whole = memory()
        self._up.tell(
            Heartbeat(
                vault_bytes=held, vault_max=most, heard=self._up.heard,
                free_bytes=free, all_bytes=whole,
            )
        )  # fmt: skip
        self._up.beat()
        self._relay.beat()
        self._crew.look()
        self._signs.look()
        self._look_for_notice()
        asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _look_for_notice(self) -> None:
        left_s = self._notice.look()
        if left_s is not None:
            self.will_be_gone(left_s)

    def _give_up(self, error: TrainmoverError) -> None:
        self._error = self._error or error
        self.end(kill=True)

    def _leave(self) -> None:
        """The job is over for all: what others behind this machine have to say goes first."""
        if self._is_dismissed and not self._relay.alone.is_set():
            self._is_dismissed = False
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_task(self._relay.left(self._config.shutdown_s))
            self._waiting.add_done_callback(lambda _: self._leave())
            return
        self._relay.close()
        self._fetcher.close()
        self._examiner.close()
        self._crew.close()
        self._signs.close()
        if self._engine is not None:
            self._engine.close()
        self._up.close()
        self._set_over()

    def _set_over(self) -> None:
        if self.over.done():
            return
        if self._error is not None:
            self.over.set_exception(self._error)
        else:
            self.over.set_result(None)
