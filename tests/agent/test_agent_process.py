"""A real agent process against a controller played by the test."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from host_tools import FAKE, alive, environment

from trainmover.ids import Epoch, Slot
from trainmover.listeners.loop_listener import LoopListener
from trainmover.protocol import messages as m
from trainmover.server.machines.links import PURPOSE, MachineLink
from trainmover.server.run import bind

TOKEN = b"0123456789abcdef-token"
WAIT_S = 60.0


class Controller:
    """Keeps what the agent says; `expect` waits for a fact."""

    def __init__(self) -> None:
        self.links: set[MachineLink] = set()
        self.facts: asyncio.Queue[Any] = asyncio.Queue()
        self.link: MachineLink | None = None
        self.reasons: list[str] = []
        self.listener: LoopListener

    def said_hello(self, link: MachineLink, hello: m.Hello) -> None:
        self.link = link
        self.facts.put_nowait(hello)

    def said_return(self, link: MachineLink, back: m.Return) -> None:
        self.link = link
        self.facts.put_nowait(back)

    def said(self, link: MachineLink, fact: m.AgentFact) -> None:
        match fact:
            case m.FromWorker(payload=payload):
                self.facts.put_nowait(m.decode_worker_fact(payload))
            case m.SaidHere(told=told):
                for one in told:
                    self.facts.put_nowait(one)
            case m.CommittedHere(told=columns):
                for alike in columns:
                    for rank, rows in alike.each():
                        self.facts.put_nowait(m.Committed(rank=rank, epoch=alike.epoch, rows=rows))
            case _:
                self.facts.put_nowait(fact)

    def now(self) -> int:
        return 0

    def link_lost(self, link: MachineLink, why: str, *, nonsense: bool) -> None:
        self.facts.put_nowait(None)

    def turned_away(self, why: str) -> None:
        self.reasons.append(why)

    def order(self, order: m.Order) -> None:
        assert self.link is not None
        self.link.send(order)

    def lose(self) -> None:
        """The link breaks."""
        assert self.link is not None
        self.link.abort()

    async def expect(self, kind: type[Any]) -> Any:
        async with asyncio.timeout(WAIT_S):
            while not isinstance(fact := await self.facts.get(), kind):
                pass
            return fact


class Play:
    """One agent process and its controller. `after` runs once the agent is welcome."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.token_file = tmp_path / "token"
        self.token_file.write_bytes(TOKEN + b"\n")
        self.token_file.chmod(0o600)
        self.process: subprocess.Popen[str] | None = None
        self.controller = Controller()
        self.behave = "good"
        self.nproc = 1
        self.log = m.LogSpec()
        self.controller_s = 60.0
        self.flags: list[str] = []
        self.port = 0

    def run(self, after: Callable[["Play"], Awaitable[None]]) -> tuple[int, str]:
        return asyncio.run(self._run(after))

    def spec(self) -> m.JobSpec:
        return m.JobSpec(
            run_id=f"r{os.getpid()}", argv=["2", str(self.tmp_path / "finish"), self.behave],
            nproc=self.nproc, store="127.0.0.1:1", cwd=str(self.tmp_path), log=self.log,
        )  # fmt: skip

    async def _run(self, after: Callable[["Play"], Awaitable[None]]) -> tuple[int, str]:
        self.controller = controller = Controller()
        sock = bind("127.0.0.1:0", "The controller")
        self.port = sock.getsockname()[1]
        controller.listener = listener = LoopListener(
            TOKEN,
            PURPOSE,
            partial(MachineLink, controller),
            name=self.spec().run_id,
            turned_away=controller.turned_away,
        )
        await listener.open(sock)
        self.start(self.port)
        try:
            await after(self)
            return await self.ended()
        finally:
            listener.close()
            for link in list(controller.links):
                link.abort()

    def start(self, port: int) -> None:
        command = [sys.executable, "-m", "trainmover.agent", "--controller", f"127.0.0.1:{port}"]
        command += [
            "--machine",
            "m1",
            "--nproc",
            str(self.nproc),
            "--dir",
            str(self.tmp_path / "d"),
        ]
        command += ["--token-file", str(self.token_file), "--worker", json.dumps(FAKE)]
        command += ["--parent", str(os.getpid()), "--shutdown-timeout", "1"]
        command += ["--controller-timeout", str(self.controller_s), *self.flags]
        with (self.tmp_path / "said").open("a") as said:
            self.process = subprocess.Popen(
                command,
                stdout=said,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env=environment(),
            )

    async def ended(self) -> tuple[int, str]:
        assert self.process is not None
        async with asyncio.timeout(WAIT_S):
            _, said = await asyncio.to_thread(self.process.communicate)
        return self.process.returncode, said

    async def welcome(self) -> m.Hello:
        hello: m.Hello = await self.controller.expect(m.Hello)
        self.controller.order(m.Welcome(spec=self.spec()))
        return hello

    async def workers_up(self) -> list[int]:
        """Pids of freshly started workers."""
        await self.welcome()
        return await self.restarted(0)

    async def restarted(self, restarts: int) -> list[int]:
        self.controller.order(m.StartWorkers(epoch=Epoch(0), restarts=restarts))
        return [(await self.controller.expect(m.WorkerUp)).pid for _ in range(self.nproc)]

    def run_rank(self) -> None:
        self.controller.order(m.RunRank(epoch=Epoch(1), slot=Slot(0), buddies={}))


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    play = Play(tmp_path)
    yield play
    if play.process is not None and play.process.poll() is None:
        play.process.kill()
        play.process.wait()


def test_it_relays_both_ways_and_shutdown_leaves_nothing(play: Play) -> None:
    play.nproc = 2
    pids: list[int] = []

    async def after(play: Play) -> None:
        pids.extend(await play.workers_up())
        play.run_rank()
        ranks = {(await play.controller.expect(m.Committed)).rank for _ in range(2)}
        assert ranks == {0, 1}
        play.controller.order(m.Shutdown())

    code, said = play.run(after)
    assert (code, said) == (0, "")
    assert not any(alive(pid) for pid in pids)
    assert not (play.tmp_path / "d").exists()
    assert (play.tmp_path / "said").read_text().splitlines() == [
        f"m1: joined r{os.getpid()}",
        "m1: has ranks 0-1",
        "m1: let go: the job is over, or goes on without it",
    ]


def test_a_controller_that_stays_away_ends_the_workers_and_the_agent(play: Play) -> None:
    play.controller_s = 0.3
    pids: list[int] = []

    async def after(play: Play) -> None:
        pids.extend(await play.workers_up())
        play.controller.listener.close()
        play.controller.lose()

    code, said = play.run(after)
    assert code == 1
    assert "The link to the controller was lost: it did not come back in 0.3 s" in said
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("away", [False, True], ids=["there", "away"])
def test_it_ends_with_the_process_that_the_run_lives_in(play: Play, away: bool) -> None:
    """Which is not its parent: it was added. It does not wait for another controller then."""
    pids: list[int] = []
    with subprocess.Popen(["sleep", "1000"]) as run:
        play.flags = ["--run", str(run.pid)]

        async def after(play: Play) -> None:
            pids.extend(await play.workers_up())
            if away:
                play.controller.listener.close()
                play.controller.lose()
            run.kill()

        try:
            code, said = play.run(after)
        finally:
            run.kill()
    assert code == 1
    assert "The process that m1's run lived in has ended" in said
    assert not any(alive(pid) for pid in pids)


def test_a_controller_that_comes_back_finds_the_workers_and_hears_all_that_was_said(
    play: Play,
) -> None:
    async def after(play: Play) -> None:
        pids = await play.workers_up()
        play.controller.order(m.Heard(facts=1))
        play.run_rank()
        committed = await play.controller.expect(m.Committed)
        play.controller.lose()
        back = await play.controller.expect(m.Return)
        assert (back.heard, back.dropped) == (2, 1)
        play.controller.order(m.Resumed(facts=2))
        assert isinstance(await play.controller.expect(m.WorkerFact), m.Recorded)
        assert await play.controller.expect(m.WorkerFact) == committed
        assert alive(pids[0])
        play.controller.order(m.Shutdown())

    assert play.run(after)[0] == 0


def test_what_nobody_says_to_be_safe_is_kept_though_no_link_has_broken(play: Play) -> None:
    """A link that is cut is silent for long before it is lost."""
    play.behave = "keeps"

    async def after(play: Play) -> None:
        await play.workers_up()
        assert (await play.controller.expect(m.Warned)).text == "keeps True"
        play.controller.order(m.Heard(facts=2))
        assert (await play.controller.expect(m.Warned)).text == "keeps False"
        play.controller.order(m.Shutdown())

    assert play.run(after) == (0, "")


def test_a_machine_that_was_given_up_ends_its_workers_and_comes_as_a_standby(play: Play) -> None:
    from trainmover.state.vault import VaultClient

    async def after(play: Play) -> None:
        hello = await play.welcome()
        vault = VaultClient(hello.vault, TOKEN)
        vault.put_record(3, 7, True, b"x")
        pids = await play.restarted(0)
        play.controller.lose()
        await play.controller.expect(m.Return)
        play.controller.order(m.Refused(reason="m1 was given up.", retry_s=0.0))
        again = await play.welcome()
        assert (again.standby, again.vault) == (True, hello.vault)
        assert again.incarnation != hello.incarnation
        assert not alive(pids[0])
        assert vault.get_record(3, 7) is None
        vault.close()
        assert await play.restarted(0) != pids
        play.controller.order(m.Shutdown())

    assert play.run(after)[0] == 0


def test_an_agent_that_was_never_welcome_comes_back_as_what_it_was(play: Play) -> None:
    async def after(play: Play) -> None:
        await play.controller.expect(m.Hello)
        play.controller.lose()
        back = await play.controller.expect(m.Return)
        assert (back.heard, back.dropped) == (0, 0)
        play.controller.order(m.Refused(reason="Who is m1?", retry_s=0.0))
        assert not (await play.welcome()).standby
        play.controller.order(m.Shutdown())

    assert play.run(after)[0] == 0


def test_sigterm_ends_an_agent_whose_controller_is_away(play: Play) -> None:
    async def after(play: Play) -> None:
        await play.workers_up()
        play.controller.listener.close()
        play.controller.lose()
        await play.controller.expect(type(None))
        assert play.process is not None
        play.process.terminate()

    assert play.run(after) == (0, "")


def test_a_killed_agent_takes_its_workers_with_it(play: Play) -> None:
    pids: list[int] = []

    async def after(play: Play) -> None:
        pids.extend(await play.workers_up())
        play.controller.order(m.Die())
        await play.controller.expect(type(None))

    code, _ = play.run(after)
    assert code == -signal.SIGKILL
    from host_tools import until

    until(lambda: not any(alive(pid) for pid in pids), "workers die with their agent")


def test_sigterm_is_a_shutdown(play: Play) -> None:
    async def after(play: Play) -> None:
        await play.workers_up()
        assert play.process is not None
        play.process.terminate()

    assert play.run(after) == (0, "")


async def terminated_with_a_rank(play: Play) -> subprocess.Popen[str]:
    await play.workers_up()
    play.run_rank()
    await play.controller.expect(m.Committed)
    assert play.process is not None
    play.process.terminate()
    return play.process


def test_sigterm_of_a_machine_with_ranks_waits_until_they_live_elsewhere(play: Play) -> None:
    async def after(play: Play) -> None:
        process = await terminated_with_a_rank(play)
        assert (await play.controller.expect(m.Leaving)).left_ms == 30_000
        assert process.poll() is None
        play.controller.order(m.Leave(epoch=Epoch(2)))

    code, text = play.run(after)
    assert code == 0
    assert "its ranks go to a standby first, for which it waits up to 29 s" in text


@pytest.mark.parametrize("asked", ["twice", "with no time left"])
def test_and_not_where_there_is_no_time(play: Play, asked: str) -> None:
    play.flags = ["--notice", "1"] if asked == "with no time left" else []

    async def after(play: Play) -> None:
        process = await terminated_with_a_rank(play)
        await play.controller.expect(m.Leaving)
        if asked == "twice":
            process.terminate()

    assert play.run(after)[0] == 0


def test_a_crash_is_reported_with_its_signal_after_its_last_words(play: Play) -> None:
    async def after(play: Play) -> None:
        (pid,) = await play.workers_up()
        play.run_rank()
        await play.controller.expect(m.Committed)
        os.kill(pid, signal.SIGSEGV)
        exited = await play.controller.expect(m.WorkerExited)
        assert (exited.local_rank, exited.pid, exited.code) == (0, pid, -signal.SIGSEGV)
        play.controller.order(m.Shutdown())

    assert play.run(after)[0] == 0


def test_a_worker_that_sends_garbage_is_killed_alone(play: Play) -> None:
    play.nproc, play.behave = 2, "garbage"

    async def after(play: Play) -> None:
        await play.workers_up()
        play.run_rank()
        words = await play.controller.expect(m.WorkerExited)
        assert (words.local_rank, words.code) == (1, -signal.SIGKILL)
        play.controller.order(m.Shutdown())

    assert play.run(after) == (0, "")


def test_starting_again_replaces_every_worker_silently(play: Play) -> None:
    async def after(play: Play) -> None:
        first = await play.workers_up()
        second = await play.restarted(1)
        assert first != second
        assert not alive(first[0])
        assert play.controller.facts.empty() or not any(
            isinstance(fact, m.WorkerExited) for fact in play.controller.facts._queue
        )
        play.controller.order(m.Shutdown(kill=True))

    assert play.run(after)[0] == 0


def test_an_interrupt_is_answered_with_the_records_held(play: Play) -> None:
    from trainmover.state.vault import VaultClient

    async def after(play: Play) -> None:
        hello = await play.welcome()
        vault = VaultClient(hello.vault, TOKEN)
        vault.put_record(3, 7, True, b"x")
        vault.close()
        play.controller.order(m.Interrupt(epoch=Epoch(2)))
        held = await play.controller.expect(m.VaultHeld)
        assert (held.epoch, held.records) == (2, {3: [7]})
        play.controller.order(m.Shutdown())

    assert play.run(after)[0] == 0


def test_a_script_that_prints_in_a_loop_costs_few_messages_and_all_is_in_the_log(
    play: Play,
) -> None:
    play.behave = "chatty"
    play.log = m.LogSpec(log_dir=str(play.tmp_path / "logs"))
    outputs: list[m.Output] = []

    async def after(play: Play) -> None:
        await play.workers_up()
        play.run_rank()
        await play.controller.expect(m.Committed)
        play.controller.order(m.Shutdown())
        while (fact := await play.controller.facts.get()) is not None:
            outputs.extend([fact] if isinstance(fact, m.Output) else [])

    assert play.run(after)[0] == 0
    assert outputs[-1].text.endswith("last\n")
    assert len(outputs) < 500
    (log,) = (play.tmp_path / "logs").rglob("stdout.log")
    assert log.relative_to(play.tmp_path / "logs").parts[1:] == (
        "attempt_0",
        "m1",
        "0",
        "stdout.log",
    )
    assert log.read_text().count("y" * 50 + "\n") == 20_000


def test_a_wrong_token_ends_it_with_a_sentence(play: Play) -> None:
    play.token_file.write_text("another token of good length")

    async def after(play: Play) -> None:
        return None

    code, said = play.run(after)
    assert code == 1
    assert "token is not the job's" in said
    assert play.controller.reasons == [
        "A peer that wanted to use controller does not know this job's token."
    ]


def test_a_refusal_is_shown(play: Play) -> None:
    async def after(play: Play) -> None:
        await play.controller.expect(m.Hello)
        play.controller.order(m.Refused(reason="No room.\nNothing ran.\nGo home."))

    code, said = play.run(after)
    assert code == 1
    assert "No room.\nNothing ran.\nGo home." in said


@pytest.mark.parametrize("data", [b"\xc1", b"", b"\x81\xa4type\xa1x"])
def test_garbage_from_the_controller_ends_it_cleanly(play: Play, data: bytes) -> None:
    pids: list[int] = []

    async def after(play: Play) -> None:
        pids.extend(await play.workers_up())
        assert play.controller.link is not None
        assert play.controller.link._transport is not None
        play.controller.link._transport.write(play.controller.link._session.seal(data))

    code, said = play.run(after)
    assert code == 1
    assert "Traceback" not in said
    assert not any(alive(pid) for pid in pids)


def test_an_order_that_was_changed_on_its_way_costs_a_link_and_no_worker(play: Play) -> None:
    pids: list[int] = []

    async def after(play: Play) -> None:
        pids.extend(await play.workers_up())
        link = play.controller.link
        assert link is not None
        assert link._transport is not None
        order = bytearray(link._session.seal(m.encode(m.Shutdown(kill=True))))
        order[30] ^= 1
        link._transport.write(bytes(order))
        await play.controller.expect(m.Return)
        play.controller.order(m.Resumed(facts=10, term=0))
        assert all(alive(pid) for pid in pids)
        play.controller.order(m.Shutdown())

    code, said = play.run(after)
    assert (code, said) == (0, "")
    assert not any(alive(pid) for pid in pids)


def test_a_working_directory_that_is_missing_is_explained(play: Play) -> None:
    async def after(play: Play) -> None:
        await play.controller.expect(m.Hello)
        spec = m.JobSpec(run_id="r", argv=["x"], store="127.0.0.1:1", cwd="/does/not/exist")
        play.controller.order(m.Welcome(spec=spec))
        play.controller.order(m.StartWorkers(epoch=Epoch(0), restarts=0))

    code, said = play.run(after)
    assert code == 2
    assert "A worker could not be started" in said


def test_no_controller_is_explained(play: Play) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    play.start(port)
    code, said = asyncio.run(play.ended())
    assert code == 1
    assert "could not be reached" in said
