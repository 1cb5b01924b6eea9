"""Machines played in this process: the agent's real link to the controller, and workers that do
nothing but answer at once as a real one would. One worker a machine.
"""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from trainmover.agent.dial import dial
from trainmover.agent.uplink import Ear, Uplink
from trainmover.errors import PeerLost, TrainmoverError
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.listeners.reach import reached
from trainmover.protocol import messages as m
from trainmover.version import VERSION

STEPS_A_TURN = 3


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As a vault does to whoever dials it."""
    writer.write(b"here")
    with suppress(OSError):
        await reader.read()
    writer.close()


class Puppet:
    """heard: orders by incarnation; said: numbered facts by incarnation, as they were said."""

    def __init__(self, machine: str, port: int, *, standby: bool = False) -> None:
        self.machine, self.standby = MachineId(machine), standby
        self.heard: dict[str, list[m.Order]] = {}
        self.said: dict[str, list[m.AgentFact]] = {}
        self.lost: TrainmoverError | None = None
        self.gone = asyncio.Event()
        self.away: list[bool] = []
        ear = Ear(
            hello=self.hello,
            obey=self.obey,
            refused=self.refused,
            away=self.away.append,
            lost=self.give_up,
        )
        self.address = f"127.0.0.1:{port}"
        self.up = Uplink(self.machine, self.address, 20.0, ear)
        self.rank, self.epoch, self.step, self.pid = Rank(-1), Epoch(0), 0, 1
        self.running = self.joiner = self.finished = False
        self.vault = ""
        self._listener: asyncio.Server | None = None

    async def join(self, token: bytes) -> "Puppet":
        await self.listen(0)
        while True:
            with suppress(PeerLost):  # Between two controllers there is none.
                dialled = await dial(self.address, token, me=self.machine)
                break
            await asyncio.sleep(0.01)
        self.up.join(dialled, token)
        self.beat()
        return self

    async def listen(self, port: int) -> None:
        """As its vault does."""
        self._listener = await asyncio.start_server(_answer, "127.0.0.1", port)
        self.vault = f"127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    def beat(self) -> None:
        if not self.gone.is_set():
            self.up.tell(m.Heartbeat(heard=self.up.heard))
            asyncio.get_running_loop().call_later(0.1, self.beat)

    def die(self) -> None:
        """The whole machine, at once."""
        if self._listener is not None:
            self._listener.close()
        self.up.dial_no_more()
        if self.up._link is not None:
            self.up._link.abort()
        self.gone.set()

    def give_up(self, error: TrainmoverError) -> None:
        self.lost = error
        self.die()

    def hello(self, incarnation: str) -> m.Hello:
        self.heard[incarnation], self.said[incarnation] = [], []
        return m.Hello(
            machine=self.machine, version=VERSION, protocol=m.PROTOCOL, nproc=1, pid=self.pid,
            standby=self.standby or len(self.heard) > 1, vault=self.vault, host="h",
            incarnation=incarnation,
        )  # fmt: skip

    def refused(self, refused: m.Refused) -> None:
        self.running = self.joiner = False
        self.up.begin_anew(refused.retry_s or 0.0)

    def say(self, fact: m.AgentFact) -> None:
        if not self.gone.is_set():
            self.said[self.up._letters.incarnation].append(fact)
            self.up.say(fact)

    def tell(self, fact: m.WorkerFact) -> None:
        """Of the worker."""
        self.say(m.FromWorker(local_rank=0, payload=msgspec.Raw(m.encode(fact))))

    def commit(self, count: int, *, first: bool) -> None:
        rows = [
            m.Row(step=Step(self.step + i), at_us=self.step + i, values={"loss": 1.0 / i})
            for i in range(1, count + 1)
        ]
        self.step += count
        self.tell(m.Committed(rank=self.rank, epoch=self.epoch, rows=rows, first=first))

    def train(self) -> None:
        self.commit(1, first=True)
        for _ in range(STEPS_A_TURN):
            self.commit(1, first=False)

    def finish(self) -> None:
        if self.running and not self.finished:
            self.finished = True
            step = Step(self.step)
            self.tell(m.Finished(rank=self.rank, step=step, code=0, digest="d", attached=True))

    def obey(self, payload: bytes, order: m.Order) -> None:
        if isinstance(order, m.LookFor):
            self.look_for(order)
            return
        if isinstance(order, m.Shutdown):
            self.up.close()
            self.gone.set()
            if self._listener is not None:
                self._listener.close()
            return
        if isinstance(order, m.UNCOUNTED):
            return
        self.heard[self.up._letters.incarnation].append(order)
        self.play(order)
        if isinstance(order, m.Interrupt):
            held = {Rank(rank): [Step(step) for step in range(1, 40)] for rank in range(2)}
            self.say(m.VaultHeld(epoch=order.epoch, records=held))

    def look_for(self, order: m.LookFor) -> None:
        def tell(done: asyncio.Task[list[MachineId]]) -> None:
            if not done.cancelled():
                self.up.tell(m.Found(number=order.number, machines=done.result()))

        self._looking = asyncio.create_task(reached(order.vaults, within_s=0.5))
        self._looking.add_done_callback(tell)

    def play(self, order: Any) -> None:
        match order:
            case m.StartWorkers():
                self.pid += 1
                self.running = self.joiner = False
                up = m.WorkerUp(pid=self.pid, address="a", torch="none", version=VERSION)
                self.tell(up)
            case m.RunRank():
                self.rank, self.epoch, self.running = Rank(order.slot), order.epoch, True
                self.tell(m.Attached(rank=self.rank))
                self.tell(m.Recorded(rank=self.rank, step=Step(3), trace="t", digest="d", bytes=1))
                self.train()
            case m.WarmUp():
                self.tell(m.Warm(rank=Rank(order.slot), shadow_steps=3, trace="t", warm_ms=1))
            case m.Hold():
                self.tell(m.Held(rank=Rank(order.slot), trace="t", run_ms=1))
            case m.Bind():
                self.rank, self.epoch, self.joiner = Rank(order.slot), order.epoch, True
                self.tell(m.Parked(rank=self.rank, epoch=order.epoch, trace="t", bind_ms=1))
            case m.Prepare():
                self.tell(m.Prepared(rank=self.rank, epoch=order.epoch))
            case m.PauseAt():
                step = Step(self.step)
                self.tell(m.AtBoundary(rank=self.rank, epoch=order.epoch, committed=step))
            case m.Interrupt() if self.running:
                step = Step(self.step)
                self.tell(
                    m.Position(rank=self.rank, epoch=order.epoch, committed=step, gate=Step(0))
                )
            case m.Verdict():
                step = order.committed
                self.tell(m.AtBoundary(rank=self.rank, epoch=order.epoch, committed=step))
            case m.Switch() if self.joiner or self.running:
                self.switch(order)
            case m.Go() if self.joiner or self.running:
                self.running, self.joiner, self.epoch = True, False, order.epoch
                self.train()
            case m.Leave():
                self.running = self.joiner = False
                self.tell(m.Left())
            case m.Exit():
                self.say(m.WorkerExited(local_rank=0, pid=self.pid, code=0))

    def switch(self, order: m.Switch) -> None:
        if self.joiner:
            self.step = order.committed
            certificate = m.Certificate(
                rank=self.rank, source_rank=order.sources[self.rank][0].rank, step=order.committed,
                epoch=order.epoch, source_digest="d", joiner_digest="d", trace="t", position="p",
                bytes=1, state_ms=1.0,
            )  # fmt: skip
            self.tell(m.Loaded(rank=self.rank, epoch=order.epoch, certificate=certificate))
        self.tell(m.Switched(rank=self.rank, epoch=order.epoch))
