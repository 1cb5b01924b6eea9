# SPDX-License-Identifier: Apache-2.0
"""A real controller in a process of its own, and agents over the loopback interface that do nothing
but speak: every frame is sealed, sent, heard, decided on and journaled as in earnest.

What is measured is the processor time of the controller's process. A second is one step, of all
ranks at once, and five beats of every agent: counted, so that a busy host stretches it and spoils
nothing.
"""

import asyncio
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from bench.control.obedient import STEP, Obedient
from trainmover.agent.dial import dial
from trainmover.agent.relaying.relay import Relay
from trainmover.agent.together import Together
from trainmover.agent.uplink import Ear, Uplink
from trainmover.controller.events import EVENTS, MachinesLost
from trainmover.errors import PeerLost, TrainmoverError
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.journal import Journal
from trainmover.protocol import messages as m
from trainmover.protocol.deadlines import BEAT_S
from trainmover.server.run import Server, bind, collect_seldom
from trainmover.version import VERSION

TOKEN = b"bench" * 8
NO_RELAYS = 0
AT_ONCE = 32
"""That dial; more would push each other out before they are proved."""
BEATS_A_STEP = round(1.0 / BEAT_S)
PARTS = 40
"""Of a beat."""
STANDBYS = 2
WAIT_S = 300.0


@dataclass(frozen=True)
class Live:
    """agents, of nproc ranks each; carried: of these, behind relays from begin to end.

    cpu_s      of the controller's process, for one step of all and a second of beats
    orders_s   of it, from a machine's loss until its orders were written to all others
    heard_s    from the death of that machine until the last of the others had its order, by the
               clock, with whatever else the host does
    status_s   of it, for the whole status as JSON
    memory_mb  of the controller's process
    """

    agents: int
    carried: int
    nproc: int
    steps: int
    cpu_s: float
    orders_s: float
    heard_s: float
    recovered_s: float
    status_s: float
    memory_mb: float


def measured(agents: int, nproc: int, steps: int, *, relays_above: int = NO_RELAYS) -> Live:
    """Start a job, train for some steps, lose a machine, recover. relays_above: as of a run."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with _controller(agents, nproc, relays_above) as controller:
        return asyncio.run(_played(controller, agents, nproc, steps))


async def _played(controller: Connection, agents: int, nproc: int, steps: int) -> Live:
    return await _Play(controller, agents, nproc).all(steps)


# --- the controller's process -----------------------------------------------------------------


@contextmanager
def _controller(agents: int, nproc: int, relays_above: int) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    spec = m.JobSpec(
        run_id="bench", argv=["train.py"], machines=agents, standbys=STANDBYS, nproc=nproc,
        relays_above=relays_above,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="bench-control-") as folder:
        process = context.Process(target=_serve, args=(theirs, spec, folder), daemon=True)
        process.start()
        theirs.close()
        try:
            yield ours
        finally:
            process.kill()
            process.join()
            ours.close()


def _serve(asked: Connection, spec: m.JobSpec, folder: str) -> None:
    with Journal.create(Path(folder) / "journal.sqlite", spec) as journal:
        collect_seldom()
        asyncio.run(_serve_on_loop(asked, journal))


async def _serve_on_loop(asked: Connection, journal: Journal) -> None:
    await _Serving(asked, journal).serve()


class _Serving:
    """Answers what it is asked over a pipe, each time at once."""

    def __init__(self, asked: Connection, journal: Journal) -> None:
        self._asked = asked
        self._server = Server(journal.spec, TOKEN, journal)
        self._take = self._server.control.take
        self._server.control.take = self._timed  # type: ignore[method-assign]
        self._orders_s = 0.0

    async def serve(self) -> None:
        listener = bind("127.0.0.1:0", "The controller")
        await self._server.start(listener)
        self._asked.send(listener.getsockname()[1])
        asyncio.get_running_loop().add_reader(self._asked.fileno(), self._answer)
        await self._server.ended

    def _timed(self, event: EVENTS) -> None:
        """A clock of processor time is asked only for what is measured: it is dear."""
        if not isinstance(event, MachinesLost):
            self._take(event)
            return
        begun = time.process_time()
        self._take(event)
        self._orders_s = time.process_time() - begun

    def _answer(self) -> None:
        self._asked.recv()
        job = self._server.job
        begun = time.process_time()
        status = msgspec.json.encode(self._server.status())
        said = {
            "status_s": time.process_time() - begun,
            "status_bytes": len(status),
            "cpu_s": begun,
            "orders_s": self._orders_s,
            "step": min((one.step for one in self._server.progress.ranks.values()), default=0),
            "warm": job.all_recorded and all(one.held is not None for one in _spare(job)),
            "behind": self._behind(),
            "carried": self._carried(),
            "done": bool(job.incidents) and str(job.incidents[-1].outcome) != "open",
            "memory_mb": _most_mb(),
        }
        self._asked.send(said)

    def _carried(self) -> int:
        return sum(link.relay is not None for link in self._server.control.members.values())

    def _behind(self) -> bool:
        """Whether all are behind relays but those; or there are to be none."""
        control = self._server.control
        alone = len(control.members) - self._carried()
        above = self._server.spec.relays_above
        few = not above or len(control.members) <= above
        return few or 0 < alone == len(control.carrying.trunks)


def _most_mb() -> float:
    """Of this process in memory. What `getrusage` says begins with its parent's."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def _spare(job: Any) -> list[Any]:
    return [job.machines[name] for name in job.machines if name not in job.seats]


# --- agents -----------------------------------------------------------------------------------


class _Agent:
    """One machine: an agent's uplink, and workers that obey at once; a relay, if it is to be."""

    def __init__(self, play: "_Play", name: MachineId, *, standby: bool) -> None:
        self.there = Obedient(name, play.nproc)
        self.interrupted_s = 0.0
        self._play = play
        self._standby = standby
        self._together = Together(play.nproc)
        self._relay: Relay | None = None
        ear = Ear(
            hello=self._hello, obey=self._obey, refused=self._refused,
            away=lambda away: None, lost=self._lost,
        )  # fmt: skip
        self._up = Uplink(name, f"127.0.0.1:{play.port}", WAIT_S, ear)

    async def join(self) -> None:
        dialled = None
        while dialled is None:  # As an agent does: it may be busy with those that came before.
            with suppress(PeerLost):
                dialled = await dial(f"127.0.0.1:{self._play.port}", TOKEN, me=self.there.name)
        self._up.join(dialled, TOKEN)

    def _hello(self, incarnation: str) -> m.Hello:
        return m.Hello(
            machine=self.there.name, version=VERSION, protocol=m.PROTOCOL, nproc=self._play.nproc,
            standby=self._standby, vault=self._vault(), host=self.there.name, pid=1,
            incarnation=incarnation,
        )  # fmt: skip

    def _vault(self) -> str:
        """All have one, and somebody answers there; but for the one that will be lost."""
        is_lost = self.there.name == self._play.victim
        return f"127.0.0.1:{NOBODY if is_lost else self._play.vault_port}"

    def _refused(self, refused: m.Refused) -> None:
        raise AssertionError(f"{self.there.name}: {refused.reason}")

    def _lost(self, error: TrainmoverError) -> None:
        raise error

    def beat(self) -> None:
        self._up.tell(m.Heartbeat(heard=self._up.heard))
        self._up.beat()
        if self._relay is not None:
            self._relay.beat()

    def commit(self, step: Step, epoch: Epoch, at_us: int) -> None:
        """All its ranks, in one fact, as an agent does."""
        for rank in self.there.ranks:
            rows = [m.Row(step=step, at_us=at_us + rank, values={"loss": 1 / (step + rank)})]
            took = [m.Took(step=step, own_us=90_000 + rank % 7 * 100, cpu_us=80_000)]
            said = self._together.take(m.Committed(rank=rank, epoch=epoch, rows=rows, took=took))
            self._say(said)

    def die(self) -> None:
        self._up.close()
        if self._relay is not None:
            self._relay.close()

    def _say(self, said: list[m.AgentFact]) -> None:
        for fact in said:
            self._up.say(fact)

    def _obey(self, _: bytes, order: m.Order) -> None:
        if isinstance(order, m.BeRelay):
            self._be_relay()
        self.there.step = self._play.step
        self._say(self._packed(self.there.facts(order)))
        if isinstance(order, m.Interrupt):
            self.interrupted_s = time.monotonic()
            self._say([self.there.vault(order, self._play.lost)])

    def _be_relay(self) -> None:
        if self._relay is None:
            controller = f"127.0.0.1:{self._play.port}"
            self._relay = Relay(self.there.name, controller, "127.0.0.1", TOKEN, None)
        self._relay.begin(self._up.run, self._up.incarnation)

    def _packed(self, facts: list[tuple[int, m.WORKER_FACTS]]) -> list[m.AgentFact]:
        """As an agent does, where all of its workers answer at once; kind by kind."""
        said: list[m.AgentFact] = []
        for local, fact in sorted(facts, key=lambda one: type(one[1]).__name__):
            if isinstance(fact, m.Joint):
                said += self._together.take(fact)
            else:
                raw = msgspec.Raw(m.encode(fact))
                said += [*self._together.given(), m.FromWorker(local_rank=local, payload=raw)]
        return [*said, *self._together.given()]


NOBODY = 1
"""A port at which nobody listens, so that a host that is asked refuses at once."""


class _Vault(asyncio.Protocol):
    """To who only asks whether one is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"x")
        transport.close()


class _Play:
    def __init__(self, controller: Connection, agents: int, nproc: int) -> None:
        self.nproc = nproc
        self.port: int = controller.recv()
        self.step = STEP
        self.lost: list[Rank] = []
        self._controller = controller
        names = [MachineId(f"m{number + 1}") for number in range(agents + STANDBYS)]
        self.vault_port = 0
        self.victim = names[agents - 1]  # Among the last to come: it relays for nobody.
        self._agents = [_Agent(self, name, standby=at >= agents) for at, name in enumerate(names)]
        self._count = agents

    async def all(self, steps: int) -> Live:
        vault = await asyncio.get_running_loop().create_server(_Vault, "127.0.0.1", 0)
        self.vault_port = vault.sockets[0].getsockname()[1]
        for first in range(0, len(self._agents), AT_ONCE):
            await asyncio.gather(*(agent.join() for agent in self._agents[first : first + AT_ONCE]))
            self._beat_all()
        await self._until("warm")
        await self._until("behind")
        carried = self._ask()["carried"]
        _say(f"{self._count} agents of {self.nproc} ranks train, {carried} behind relays")
        for _ in range(2):
            await self._train_one(Epoch(1))
        before = self._ask()
        for _ in range(steps):
            await self._train_one(Epoch(1))
        after = self._ask()
        status = min((self._ask() for _ in range(5)), key=lambda one: one["status_s"])
        cpu_s = (after["cpu_s"] - before["cpu_s"] - before["status_s"]) / steps
        _say(f"a step {cpu_s:.3f} s, status {status['status_s']:.3f} s")
        heard_s, recovered_s = await self._lose()
        last = self._ask()
        return Live(
            agents=self._count,
            carried=min(carried, last["carried"]),
            nproc=self.nproc,
            steps=steps,
            cpu_s=cpu_s,
            orders_s=last["orders_s"],
            heard_s=heard_s,
            recovered_s=recovered_s,
            status_s=status["status_s"],
            memory_mb=last["memory_mb"],
        )

    async def _train_one(self, epoch: Epoch) -> None:
        """One step, and a second of beats, until the controller has heard all of it. Agents speak
        one after the other, as their clocks differ: nobody is silent for long while others do."""
        self.step = Step(self.step + 1)
        begun = time.monotonic()
        for beat in range(BEATS_A_STEP):
            for part in range(PARTS):
                for agent in self._agents[part::PARTS]:
                    if beat == 0:
                        agent.commit(self.step, epoch, time.time_ns() // 1000)
                    agent.beat()
                due = begun + (beat + (part + 1) / PARTS) * BEAT_S
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _lose(self) -> tuple[float, float]:
        (lost,) = [agent for agent in self._agents if agent.there.name == self.victim]
        others = [agent for agent in self._agents if agent is not lost]
        self.lost = list(lost.there.ranks)
        begun = time.monotonic()
        lost.die()
        while not all(agent.interrupted_s for agent in others):
            await asyncio.sleep(0.005)
            if time.monotonic() - begun > WAIT_S:
                raise TimeoutError("not all were told of the loss")
        heard_s = max(agent.interrupted_s for agent in others) - begun
        _say(
            f"one lost: orders {self._ask()['orders_s']:.3f} s, heard by all after {heard_s:.2f} s"
        )
        self._agents = others
        await self._until("done")
        return heard_s, time.monotonic() - begun

    def _beat_all(self) -> None:
        for agent in self._agents:
            agent.beat()

    async def _until(self, what: str) -> None:
        begun = time.monotonic()
        while not self._ask()[what]:
            if time.monotonic() - begun > WAIT_S:
                raise TimeoutError(f"the controller is not {what}")
            self._beat_all()
            await asyncio.sleep(BEAT_S)

    def _ask(self) -> dict[str, Any]:
        self._controller.send("how is it?")
        known: dict[str, Any] = self._controller.recv()
        return known


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    given = list(map(int, sys.argv[1:]))
    print(measured(*given[:3], relays_above=given[3] if len(given) > 3 else NO_RELAYS))
