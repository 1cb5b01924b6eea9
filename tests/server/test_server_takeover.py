"""A controller that dies at any event, and its successor: nothing is lost, nothing comes twice."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from puppets import Puppet

from trainmover.cli.watch.status import controller_line
from trainmover.controller.decide import decide
from trainmover.controller.effects import Send
from trainmover.controller.events import (
    EVENTS,
    AgentSaid,
    ContactChanged,
    ControllerReturned,
    MachineJoined,
    WorkerSaid,
)
from trainmover.controller.state import Job, Outcome, Phase
from trainmover.ids import Epoch, MachineId, Rank
from trainmover.journal import Journal
from trainmover.protocol import messages as m
from trainmover.server.history import bookmarks
from trainmover.server.history.past import Past
from trainmover.server.machines.links import MachineLink
from trainmover.server.run import Server, bind

TOKEN = b"0123456789abcdef-token"
SPEC = m.JobSpec(run_id="r", argv=["x"], machines=2, standbys=1, nproc=1, fingerprint_every=0)
WAIT_S = 30.0


SLOW = [(1, False), (1, True), (2, False), (5, True), (11, False), (13, True)]


class Mortal(Server):
    """Dies with the event that is the last of its life; with `early` before anything follows."""

    life = 1_000_000
    early = False
    dead = False

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._live, self.control.take = self.control.take, self.take  # type: ignore[method-assign]

    def take(self, event: EVENTS) -> None:
        if self.dead:
            return
        if not isinstance(event, ControllerReturned | ContactChanged):  # Of each life.
            self.life -= 1
        if self.life > 0 or not self.early:
            self._live(event)
            if self.job.change is None and not self.over:
                self._keep_bookmark()
        elif self.control._hearing.flush(event.at_us):
            self._journal.append(event)
        if self.life <= 0:
            self.die()

    def said_hello(self, link: MachineLink, hello: m.Hello) -> None:
        link.abort() if self.dead else super().said_hello(link, hello)

    def said_return(self, link: MachineLink, back: m.Return) -> None:
        link.abort() if self.dead else super().said_return(link, back)

    def die(self) -> None:
        self.dead = True
        self.pulse.stop()
        self._listener.close()
        for link in list(self.links):
            link.abort()
        self.news.wake()


@dataclass
class Lives:
    """A job and the controllers it has, one after the other. life: events of each; 0: it lives."""

    path: Path
    life: int = 0
    early: bool = False
    deaths: int = 0
    marked: int = 0

    def play(self, act: Callable[["Lives"], Awaitable[None]]) -> None:
        asyncio.run(self._play(act))

    async def _play(self, act: Callable[["Lives"], Awaitable[None]]) -> None:
        self.puppets: dict[str, Puppet] = {}
        self.journal = Journal.create(self.path, SPEC)
        listener = bind("127.0.0.1:0", "The controller")
        self.port = listener.getsockname()[1]
        await self.begin(listener, None)
        tender = asyncio.create_task(self.tend())
        try:
            async with asyncio.timeout(WAIT_S):
                await act(self)
            assert not tender.done(), tender.exception()
        finally:
            tender.cancel()
            self.server.die()
            for puppet in self.puppets.values():
                puppet.die()
            await self.server.close()
            self.journal.close()

    async def begin(self, listener: socket.socket, past: Past | None) -> None:
        self.server = Mortal(SPEC, TOKEN, self.journal, past=past)
        self.server.life, self.server.early = self.life or 1_000_000, self.early
        await self.server.start(listener)

    async def tend(self) -> None:
        """Put a successor in the place of every controller that has died."""
        while True:
            if self.server.dead:
                await self.succeed()
            await asyncio.sleep(0.001)

    async def succeed(self) -> None:
        await self.server.close()
        self.journal.close()
        self.journal = Journal.take_over(self.path)
        past = Past.of(self.journal)
        await self.begin(bind(f"127.0.0.1:{self.port}", "The controller"), past)
        self.deaths += 1
        self.marked += past.replayed > 0

    async def crash(self) -> None:
        """Now; returns when a successor is there, and knows nothing of any machine yet."""
        deaths = self.deaths
        self.server.die()
        while self.deaths == deaths:
            await asyncio.sleep(0)

    def texts(self) -> str:
        return "\n".join(told.text for told in self.server.news.recent)

    async def until_told(self, text: str) -> None:
        while text not in self.texts():
            await self.server.news.more.wait()

    async def running(self, *standbys: str) -> None:
        for name in ("m1", "m2", *standbys):
            await self.puppet(name, standby=name in standbys)
        await self.until(has_standby if standbys else lambda job: len(job.recorded) == 2)

    async def puppet(self, name: str, *, standby: bool = False) -> Puppet:
        """One after the other, so that each takes the same place in every run."""
        self.puppets[name] = puppet = Puppet(name, self.port, standby=standby)
        await puppet.join(TOKEN)
        await self.until(lambda job: name in job.machines)
        return puppet

    async def until(self, true: Callable[[Job], Any]) -> None:
        while self.server.dead or not true(self.server.job):
            await asyncio.sleep(0.001)


def is_done(job: Job, number: int) -> bool:
    done = [incident.outcome is Outcome.DONE for incident in job.incidents]
    return len(done) == number and all(done) and job.change is None


def has_standby(job: Job) -> bool:
    spare = [machine for name, machine in job.machines.items() if name not in job.seats]
    return job.phase is Phase.RUNNING and any(machine.held is not None for machine in spare)


async def a_move_a_loss_and_the_end(lives: Lives) -> None:
    await lives.running("m3")
    lives.server.move("m1")
    await lives.until(lambda job: is_done(job, 1) and has_standby(job))
    lives.puppets["m2"].die()
    await lives.until(lambda job: is_done(job, 2))
    for name in lives.server.job.seats:
        lives.puppets[name].finish()
    await lives.until(lambda job: job.phase is Phase.ENDED)


def replayed(path: Path) -> tuple[Job, dict[str, list[m.Order]], dict[str, list[tuple[int, Any]]]]:
    """The job, and by incarnation the orders that were given and the facts that were taken."""
    orders: dict[str, list[m.Order]] = {}
    facts: dict[str, list[tuple[int, Any]]] = {}
    incarnations: dict[MachineId, str] = {}
    with Journal.open(path) as journal:
        job = Job(spec=journal.spec)
        for _, event in journal.events():
            if isinstance(event, MachineJoined):
                incarnations[event.machine] = event.incarnation
                orders[event.incarnation], facts[event.incarnation] = [], []
            if isinstance(event, WorkerSaid | AgentSaid):
                facts[incarnations[event.machine]].append((event.number, event.fact))
            job, effects = decide(job, event)
            for effect in effects:
                if isinstance(effect, Send):
                    orders[incarnations[effect.machine]].append(effect.order)
    return job, orders, facts


def told(fact: m.AgentFact) -> Any:
    return m.decode_worker_fact(fact.payload) if isinstance(fact, m.FromWorker) else fact


def without_values(fact: Any) -> Any:
    """As a first commit is journaled."""
    if not isinstance(fact, m.Committed):
        return fact
    rows = [msgspec.structs.replace(row, values={}) for row in fact.rows]
    return msgspec.structs.replace(fact, rows=rows)


def outcome(job: Job) -> Any:
    incidents = [(i.kind, i.machine, i.joiner, i.outcome, i.rung, i.step) for i in job.incidents]
    return job.phase, job.code, job.epoch, job.seats, job.committed, incidents, job.finished


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    lives = Lives(tmp_path_factory.mktemp("calm") / "j.sqlite")
    lives.play(a_move_a_loss_and_the_end)
    return outcome(replayed(lives.path)[0])


@pytest.mark.parametrize(
    ("life", "early", "between"),
    [
        (2, True, 2000),
        (3, False, 1),
        (7, True, 3),
        *(pytest.param(life, early, 5, marks=pytest.mark.soak) for life, early in SLOW),
    ],
)
def test_whenever_it_dies_every_order_and_every_fact_counts_once(
    tmp_path: Path,
    undisturbed: Any,
    life: int,
    early: bool,
    between: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bookmarks, "EVENTS_BETWEEN", between)
    lives = Lives(tmp_path / "j.sqlite", life=life, early=early)
    lives.play(a_move_a_loss_and_the_end)
    job, orders, facts = replayed(lives.path)
    assert lives.deaths >= 40 // life
    assert bool(lives.marked) == (between < 40)
    assert outcome(job) == undisturbed
    for puppet in lives.puppets.values():
        joined = [incarnation for incarnation in puppet.heard if orders.get(incarnation)]
        assert len(joined) == 1
        for incarnation, heard in puppet.heard.items():
            if incarnation not in joined:  # A controller died before it had noted that it came.
                assert not heard
                continue
            given = orders[incarnation]
            if puppet.machine != "m2":  # it died: it may not have heard the last
                assert heard == given
            assert heard == given[: len(heard)]
            numbers = [number for number, _ in facts[incarnation]]
            assert numbers == sorted(set(numbers))
            for number, fact in facts[incarnation]:
                assert fact == without_values(told(puppet.said[incarnation][number - 1]))
    with Journal.open(lives.path) as journal:
        steps = [row.step for row in journal.rows() if row.rank == 0]
    assert steps == list(range(1, 13))


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path / "j.sqlite")


def test_workers_are_to_keep_what_they_tell_until_all_of_it_is_safe(lives: Lives) -> None:
    async def act(lives: Lives) -> None:
        await lives.running()
        puppet = lives.puppets["m1"]
        await lives.crash()
        await lives.until(lambda _: puppet.away == [True])
        puppet.say(m.VaultHeld(epoch=Epoch(0), records={}))
        while puppet.away == [True]:
            await asyncio.sleep(0.001)
        assert puppet.away == [True, False]
        assert not puppet.up._letters.outbox.kept

    lives.play(act)


def test_status_is_right_as_soon_as_the_successor_is_there(lives: Lives) -> None:
    async def act(lives: Lives) -> None:
        await lives.running("m3")
        await lives.until(lambda _: not lives.puppets["m1"].up._letters.outbox.kept)
        before = lives.server.status()
        await lives.crash()
        after = lives.server.status()
        assert before["controller"] == {"restarts": 0, "since_s": None}
        assert "was restarted once" in controller_line(after["controller"])
        for name in ("phase", "epoch", "step", "loss", "step_ms", "roles"):
            assert after[name] == before[name], name
        await lives.until_told("the controller was restarted; 3 of 3 machines are back after")

    lives.play(act)


def test_who_does_not_come_back_is_lost_like_any_other(lives: Lives) -> None:
    async def act(lives: Lives) -> None:
        await lives.running("m3")
        lives.server.dead = True  # It does not notice any more.
        lives.puppets["m2"].die()
        await lives.crash()
        await lives.until(lambda job: is_done(job, 1))
        assert "2 of 3 machines are back" in lives.texts()
        assert "m2 was lost: it did not come back to the controller" in lives.texts()
        assert lives.server.job.seats == ("m1", "m3")

    lives.play(act)


def test_a_link_that_breaks_while_its_controller_lives_costs_nothing(lives: Lives) -> None:
    async def act(lives: Lives) -> None:
        await lives.running("m3")
        for machine in ("m1", "m2", "m3") * 3:
            puppet = lives.puppets[machine]
            step = puppet.step
            assert puppet.up._link is not None
            puppet.up._link.abort()
            if puppet.running:
                puppet.commit(2, first=False)
            await lives.until(
                lambda _, up=puppet.up: up._letters.welcomed and not up._letters.outbox.kept
            )
            assert lives.server.job.incidents == ()
            assert puppet.step == step + 2 * puppet.running
        assert all(len(puppet.heard) == 1 for puppet in lives.puppets.values())

    lives.play(act)
    with Journal.open(lives.path) as journal:
        steps = [row.step for row in journal.rows()]
        assert steps == [*range(1, len(steps) // 2 + 1)] * 2


def test_who_was_given_up_while_its_controller_lives_comes_back_as_a_standby(lives: Lives) -> None:
    async def act(lives: Lives) -> None:
        await lives.running("m3")
        lost = lives.puppets["m2"]
        assert lost.up._link is not None
        assert lost._listener is not None
        lost._listener.close()  # As if its agent had ended.
        lost.up._link.abort()
        lost.up._letters._attempts = 5  # It dials late: it is given up first.
        await lives.until(lambda job: is_done(job, 1))
        await lost.listen(int(lost.vault.rpartition(":")[2]))
        await lives.until(lambda job: "m2" in job.machines and job.machines["m2"].standby)
        assert "m2 was given up for lost (epoch 2)" in lives.texts()
        assert len(lost.heard) == 2
        await lives.crash()
        await lives.until_told("3 of 3 machines are back")

    lives.play(act)


@pytest.mark.parametrize("change", ["incarnation", "heard", "dropped"])
def test_who_does_not_fit_the_journal_is_refused_and_begins_anew(lives: Lives, change: str) -> None:
    """Another incarnation; or the journal has lost what it has heard, or was told to be safe."""

    async def act(lives: Lives) -> None:
        await lives.running("m3")
        letters = lives.puppets["m2"].up._letters
        await lives.until(lambda _: not letters.outbox.kept)
        lives.server.dead = True
        match change:
            case "dropped":
                letters.outbox.dropped += 1
            case "heard":
                letters.heard += 1
            case _:
                letters.incarnation = "another"
        await lives.crash()
        await lives.until(lambda job: is_done(job, 1))
        await lives.until(lambda job: "m2" in job.machines and job.machines["m2"].standby)

    lives.play(act)


def test_what_was_said_while_nobody_listened_is_heard(lives: Lives) -> None:
    async def act(lives: Lives) -> None:
        await lives.running()
        lives.server.die()
        for _ in range(5000):
            for puppet in lives.puppets.values():
                puppet.commit(1, first=False)
                puppet.up.tell(m.Output(rank=Rank(0), stream="stdout", text="x" * 1000))
        await lives.until(lambda _: lives.deaths == 1)
        await lives.until(lambda _: lives.server.progress.step == 5004)
        await lives.until(
            lambda _: not any(p.up._letters.outbox.kept for p in lives.puppets.values())
        )

    lives.play(act)
    with Journal.open(lives.path) as journal:
        assert [row.step for row in journal.rows()] == [*range(1, 5005)] * 2


def test_a_journal_that_was_cut_says_so(lives: Lives) -> None:
    async def act(lives: Lives) -> None:
        await lives.running()
        lives.journal._db.execute("INSERT INTO events VALUES (99, 1, 'Tick', '{}', 0)")
        await lives.crash()
        await lives.until_told(
            "the crash has damaged the journal: its last 1 records, from number 99"
        )

    lives.play(act)


def test_a_job_that_had_ended_tells_who_comes_back_to_leave(lives: Lives) -> None:
    async def act(lives: Lives) -> None:
        await lives.running()
        lives.server.early, lives.server.life = True, 1
        lives.server.stop(3, "enough")
        await lives.until(lambda _: lives.deaths == 1)
        code, text = await lives.server.ended
        assert (code, text.split("\n")[0]) == (3, "enough")
        assert all(puppet.gone.is_set() for puppet in lives.puppets.values())

    lives.play(act)


def test_time_does_not_run_backwards_from_one_life_to_the_next(lives: Lives) -> None:
    async def act(lives: Lives) -> None:
        await lives.running()
        lives.server._clock._now_us += 3_600_000_000  # The host's clock is put back then.
        lives.server.note("late")
        await lives.crash()
        lives.server.note("later")
        at_us = [told.at_us for told in lives.server.news.recent]
        assert at_us == sorted(at_us)

    lives.play(act)


@pytest.mark.turns(4)
def test_a_wrong_token_does_not_bring_a_machine_back(lives: Lives) -> None:
    async def act(lives: Lives) -> None:
        await lives.running("m3")
        lives.server.dead = True
        lives.puppets["m2"].up._token = b"a token that is not the job's"
        await lives.crash()
        await lives.until(lambda job: is_done(job, 1))
        assert "2 of 3 machines are back" in lives.texts()

    lives.play(act)


def test_an_answer_of_another_life_is_given_to_nobody(lives: Lives) -> None:
    async def act(lives: Lives) -> None:
        await lives.running("m3")
        lives.puppets["m3"].play = lambda order: None  # type: ignore[method-assign]
        lives.server.move("m1")
        await lives.until(lambda job: job.change is not None)
        await lives.crash()
        answer = await lives.server.kill("m9")
        assert answer.text.startswith("There is no machine m9")
        assert lives.server.job.incidents[0].request not in ("", answer.request)

    lives.play(act)


def test_control_is_regained(lives: Lives, capsys: pytest.CaptureFixture[str]) -> None:
    async def act(lives: Lives) -> None:
        await lives.running("m3", "m4")
        for _ in range(3):
            await lives.crash()
            await lives.until(lambda _: not lives.server.control.accounts.away)
        with capsys.disabled():
            print(*(line for line in lives.texts().split("\n") if "restarted" in line), sep="\n")

    lives.play(act)
