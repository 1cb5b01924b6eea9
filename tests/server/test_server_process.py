"""The server against agents played by the test: who gets in, who is lost, what is journaled."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trainmover.agent.dial import Dialled, dial
from trainmover.errors import ProtocolError, UserError
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.journal import Journal
from trainmover.journal.replay import replay
from trainmover.protocol import messages as m
from trainmover.protocol.sealed import SealedReader
from trainmover.server.run import Server, bind
from trainmover.server.view.notices import Happened, Notice
from trainmover.version import VERSION

TOKEN = b"0123456789abcdef-token"
SPEC = m.JobSpec(run_id="r", argv=["x"], machines=2, standbys=2, nproc=1)
WAIT_S = 60.0
HELLO: dict[str, Any] = {
    "version": VERSION, "protocol": m.PROTOCOL, "nproc": 1, "standby": False,
    "vault": "127.0.0.1:1", "host": "h", "pid": 1,
}  # fmt: skip


class Peer:
    """The agent's end of a proved connection."""

    def __init__(self, dialled: Dialled) -> None:
        self.transport = transport = dialled.transport
        self.seal = dialled.session.seal
        self.sock = transport.get_extra_info("socket")
        self.stream = asyncio.StreamReader()
        ear = asyncio.StreamReaderProtocol(self.stream)
        transport.set_protocol(ear)
        ear.connection_made(transport)
        transport.resume_reading()
        self.reader = SealedReader(dialled.session)
        self.orders: list[m.Order] = []
        self.beating: asyncio.Task[None] | None = None

    async def write(self, data: bytes) -> None:
        self.transport.write(data)

    async def say(self, fact: m.AgentFact) -> None:
        await self.write(self.seal(m.encode(fact)))

    async def hello(self, machine: str, **changes: Any) -> "Peer":
        await self.say(m.Hello(machine=MachineId(machine), **(HELLO | changes)))
        return self

    async def beat(self) -> None:
        while True:
            await self.say(m.Heartbeat())
            await asyncio.sleep(0.1)

    async def order(self) -> m.Order | None:
        """The next order; None when the server has closed the link."""
        while not self.orders:
            async with asyncio.timeout(WAIT_S):
                data = await self.stream.read(65536)
            if not data:
                return None
            self.orders += [m.decode_order(payload) for payload in self.reader.feed(data)]
        return self.orders.pop(0)

    async def closed(self) -> bool:
        try:
            while await self.order() is not None:
                pass
        except ConnectionError:
            pass
        return True


class Stage:
    """A server on a loop, its notices, and its peers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notices: list[Notice] = []
        self.port = 0
        self.peers: list[Peer] = []
        self.tasks: list[asyncio.Task[None]] = []

    def play(self, act: Callable[["Stage"], Awaitable[None]]) -> None:
        asyncio.run(self._play(act))

    async def _play(self, act: Callable[["Stage"], Awaitable[None]]) -> None:
        with Journal.create(self.path, SPEC) as journal:
            self.server = Server(SPEC, TOKEN, journal, watch=self.notices.append)
            listener = bind("127.0.0.1:0", "The controller")
            self.port = listener.getsockname()[1]
            await self.server.start(listener)
            try:
                await act(self)
            finally:
                for task in self.tasks:
                    task.cancel()
                await self.server.close()
                for peer in self.peers:
                    peer.transport.close()

    async def peer(self, machine: str = "", token: bytes = TOKEN) -> Peer:
        peer = Peer(await dial(f"127.0.0.1:{self.port}", token, me=machine))
        self.peers.append(peer)
        return peer

    async def member(self, machine: str, *, beats: bool = True, **changes: Any) -> Peer:
        """A welcome machine."""
        peer = await (await self.peer(machine)).hello(machine, **changes)
        assert isinstance(await peer.order(), m.Welcome)
        if beats:
            self.tasks.append(asyncio.create_task(peer.beat()))
        return peer

    async def refused(self, machine: str, **changes: Any) -> str:
        peer = await (await self.peer(machine)).hello(machine, **changes)
        order = await peer.order()
        assert isinstance(order, m.Refused)
        assert await peer.closed()
        return order.reason

    def texts(self) -> list[str]:
        return [n.text for n in self.notices if isinstance(n, Happened)]

    async def until_heard(self, text: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while not any(text in heard for heard in self.texts()):
                await self.server.news.more.wait()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "j.sqlite")


def test_another_version_protocol_size_or_a_taken_name_is_refused(stage: Stage) -> None:
    async def act(stage: Stage) -> None:
        await stage.member("m1")
        assert "runs trainmover 0.0.0" in await stage.refused("m2", version="0.0.0")
        assert "protocol 99" in await stage.refused("m2", protocol=99)
        assert "--nproc 1" in await stage.refused("m2", nproc=4)
        assert "m1 is already in the job" in await stage.refused("m1")
        assert list(stage.server.job.machines) == ["m1"]

    stage.play(act)


def test_a_wrong_token_is_noted_once_a_second_and_nothing_else_happens(stage: Stage) -> None:
    async def act(stage: Stage) -> None:
        await stage.member("m1")
        for _ in range(5):
            with pytest.raises(ProtocolError, match="token is not the job's"):
                await stage.peer(token=b"a token that is not the job's")
        assert list(stage.server.job.machines) == ["m1"]
        knocks = [text for text in stage.texts() if "does not know this job's token" in text]
        assert 1 <= len(knocks) < 5

    stage.play(act)


HEARTBEAT = m.encode(m.Heartbeat())


@pytest.mark.parametrize("data", [b"\xc1", HEARTBEAT, b"\x80", b""])
@pytest.mark.parametrize("sealed", [True, False])
def test_garbage_instead_of_a_hello_closes_that_link_only(
    stage: Stage, data: bytes, sealed: bool
) -> None:
    async def act(stage: Stage) -> None:
        good = await stage.member("m1")
        bad = await stage.peer()
        await bad.write(bad.seal(data) if sealed else data * 100)
        if not data and not sealed:
            bad.sock.shutdown(socket.SHUT_WR)
        assert await bad.closed()
        assert list(stage.server.job.machines) == ["m1"]
        stage.server.stop(0, "enough")
        while not isinstance(await good.order(), m.Shutdown):
            pass

    stage.play(act)


@pytest.mark.parametrize("sealed", [True, False])
def test_garbage_from_a_member_loses_that_machine_only(stage: Stage, sealed: bool) -> None:
    async def act(stage: Stage) -> None:
        await stage.member("m1")
        bad = await stage.member("m2", vault="127.0.0.1:1")
        await bad.write(bad.seal(b"\xc1") if sealed else b"\xff" * 100)
        why = "it broke the rules of the wire" if sealed else "what came was changed on its way"
        await stage.until_heard(f"m2 was lost: {why}")

    stage.play(act)


def test_who_has_proved_to_be_one_machine_says_hello_as_no_other(stage: Stage) -> None:
    async def act(stage: Stage) -> None:
        await stage.member("m1")
        other = await (await stage.peer("m2")).hello("m3")
        assert await other.closed()
        await stage.until_heard("Who has proved to be another machine said hello as m3")
        assert list(stage.server.job.machines) == ["m1"]

    stage.play(act)


def test_a_closed_link_is_a_loss_and_a_silent_machine_is_away(stage: Stage) -> None:
    """At the vault of the first one nobody listens, which its host says."""

    async def act(stage: Stage) -> None:
        await stage.member("m3", standby=True)
        first = await stage.member("m1", vault="127.0.0.1:1")
        stage.tasks[-1].cancel()
        first.transport.close()
        await stage.until_heard("m1 was lost: its agent has ended")
        silent = await stage.member("m2", beats=False)
        await stage.until_heard("m2 is away (silent for 1 s): its ranks train on")
        await silent.say(m.Heartbeat())
        await stage.until_heard("m2 is back after 1.")
        assert "m2" in stage.server.job.machines

    stage.play(act)


def test_the_server_s_own_stall_condemns_nobody(stage: Stage) -> None:
    async def act(stage: Stage) -> None:
        await stage.member("m1", beats=False)
        (link,) = stage.server.links
        stage.server.pulse.tick(asyncio.get_running_loop().time())
        assert link.quiet_ticks >= 1
        stage.server.pulse.tick(asyncio.get_running_loop().time() - 3.0)
        assert link.quiet_ticks == 0
        assert "m1" in stage.server.job.machines

    stage.play(act)


def committed(rank: int, *losses: float, first: bool = False) -> m.FromWorker:
    rows = [m.Row(step=Step(i + 1), at_us=i, values={"loss": x}) for i, x in enumerate(losses)]
    fact = m.Committed(rank=Rank(rank), epoch=Epoch(1), rows=rows, first=first)
    return m.FromWorker(local_rank=0, payload=msgspec.Raw(m.encode(fact)))


def test_committed_rows_go_to_the_table_and_only_the_first_commit_is_an_event(
    stage: Stage,
) -> None:
    async def act(stage: Stage) -> None:
        member = await stage.member("m1")
        await member.say(committed(0, float("nan"), 2.0, first=True))
        await member.say(committed(0, float("nan"), 2.0, 3.0))
        async with asyncio.timeout(WAIT_S):
            while len(list(stage.server._journal.rows())) < 3:
                await asyncio.sleep(0.01)
        assert stage.server.status()["loss"] == 3.0

    stage.play(act)
    with Journal.open(stage.path) as journal:
        facts = [e.fact for _, e in journal.events() if hasattr(e, "fact")]
    assert [[(row.step, row.values) for row in fact.rows] for fact in facts] == [[(1, {})]]
    assert replay(stage.path) == stage.server.job


def test_a_worker_that_cannot_be_is_not_journaled(stage: Stage) -> None:
    """It would fail whoever replays that."""

    async def act(stage: Stage) -> None:
        member = await stage.member("m1")
        await member.say(m.WorkerExited(local_rank=7, pid=1, code=0))
        await member.say(committed(0, 1.0, first=True))
        async with asyncio.timeout(WAIT_S):
            while not list(stage.server._journal.rows()):
                await asyncio.sleep(0.01)

    stage.play(act)
    with Journal.open(stage.path) as journal:
        kinds = [type(e.fact).__name__ for _, e in journal.events() if hasattr(e, "fact")]
    assert kinds == ["Committed"]


def test_how_much_of_its_state_a_joiner_has_is_not_journaled(stage: Stage) -> None:
    async def act(stage: Stage) -> None:
        member = await stage.member("m1")
        fact = m.Taking(rank=Rank(0), epoch=Epoch(2), bytes=3, bytes_whole=4)
        await member.say(m.FromWorker(local_rank=0, payload=msgspec.Raw(m.encode(fact))))
        async with asyncio.timeout(WAIT_S):
            while stage.server.progress.taken(Epoch(2)) is None:
                await asyncio.sleep(0.01)
        assert stage.server.progress.taken(Epoch(2)) == (3, 4)

    stage.play(act)
    with Journal.open(stage.path) as journal:
        assert not [e for _, e in journal.events() if hasattr(e, "fact")]


def test_two_truths_for_one_step_are_told_and_the_job_goes_on(stage: Stage) -> None:
    async def act(stage: Stage) -> None:
        member = await stage.member("m1")
        await member.say(committed(0, 1.0))
        await member.say(committed(0, 1.5))
        await stage.until_heard("not proved equal: rank 0 in step 1")
        assert stage.server.job.unequal == 1
        assert not stage.server.ended.done()

    stage.play(act)


def test_the_end_waits_for_goodbyes_and_answers_open_requests(stage: Stage) -> None:
    async def act(stage: Stage) -> None:
        member = await stage.member("m1")
        refused = await stage.server.move("m1")
        assert not refused.ok
        stage.server.stop(130, "stopped by SIGINT")
        assert not stage.server.ended.done()
        assert (await stage.server.move("m1")).text == "The job has ended: nothing was done."
        while not isinstance(await member.order(), m.Shutdown):
            pass
        stage.tasks[-1].cancel()
        member.transport.close()
        assert (await stage.server.ended)[0] == 130

    stage.play(act)


def test_who_says_hello_after_the_end_is_refused(stage: Stage) -> None:
    async def act(stage: Stage) -> None:
        await stage.member("m1")
        stage.server.stop(0, "enough")
        assert "has ended" in await stage.refused("m2")

    stage.play(act)


def test_a_port_in_use_is_a_user_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"The API cannot listen on 127.0.0.1:{port}"):
            bind(f"127.0.0.1:{port}", "The API")
