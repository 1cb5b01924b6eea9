"""Runs real jobs (processes, sockets, signals) and lets a scenario disturb them."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from trainmover import communicators
from trainmover.controller.change.incidents import lately
from trainmover.controller.events import WorkerSaid
from trainmover.controller.state import Job, MachineState, Outcome
from trainmover.journal import Journal
from trainmover.journal.samples import Used
from trainmover.launch.fork_server import ForkServerProcess
from trainmover.launch.run_job import RunHandle, RunOptions, run_job
from trainmover.protocol.messages import LogSpec, SandboxFailed, WorkerUp
from trainmover.server.view.notices import Happened, Printed

COMM = "TRAINMOVER_TEST_COMM"
QUIET_S = 120
LIMIT = "TRAINMOVER_TEST_LIMIT"
TRAIN = str(Path(__file__).with_name("train.py"))
Scenario = Callable[["Live"], Awaitable[None]]


@dataclass
class Outcomes:
    """What is left of a job: rows are the committed values of every rank and step that it ended
    with, used is what samples they were made of, where the script lets the journal know."""

    code: int
    text: str
    job: Job
    rows: dict[tuple[int, int], dict[str, float]]
    digests: dict[int, str]
    printed: list[str]
    sentences: list[str]
    used: list[Used]

    @property
    def steps(self) -> str:
        """How many there were, as an argument of the run to compare with."""
        return str(max(step for _, step in self.rows))


@dataclass
class Live:
    """A running job, for scenarios. Wait for facts, never for time. sentences: told so far."""

    handle: RunHandle
    sentences: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    pids: dict[str, dict[int, int]] = field(default_factory=dict)
    sandbox_failed: list[SandboxFailed] = field(default_factory=list)

    @property
    def job(self) -> Job:
        return self.handle.server.job

    def step(self) -> int:
        progress = self.handle.server.progress
        return max((rank.step for rank in progress.ranks.values()), default=0)

    async def until(self, fact: Callable[[], bool]) -> None:
        while not fact():
            self.changed.clear()
            await self.changed.wait()

    async def warm(self, count: int = 1) -> None:
        """Until so many standbys are warm and no change is under way; they may still make the run
        that they are to hold."""
        ready = (MachineState.WARM, MachineState.HOLDING)
        await self.until(
            lambda: (
                self.job.change is None
                and sum(m.state in ready for m in self.job.machines.values()) >= count
            )
        )

    async def holding(self, count: int = 1) -> None:
        """Until so many standbys hold a run and no change is under way."""
        await self.until(
            lambda: (
                self.job.change is None
                and sum(m.held is not None for m in self.job.machines.values()) >= count
            )
        )

    async def at_step(self, step: int) -> None:
        await self.until(lambda: self.step() >= step)

    async def incidents_done(self, count: int) -> None:
        await self.until(
            lambda: (
                len(lately(self.job)) >= count
                and all(i.outcome is not Outcome.OPEN for i in self.job.incidents)
            )
        )

    def note(self, event: object) -> None:
        if isinstance(event, WorkerSaid) and isinstance(event.fact, WorkerUp):
            self.pids.setdefault(event.machine, {})[event.local_rank] = event.fact.pid
        if isinstance(event, WorkerSaid) and isinstance(event.fact, SandboxFailed):
            self.sandbox_failed.append(event.fact)

    def signal_worker(
        self, machine: str, number: int = signal.SIGKILL, local_rank: int = 0
    ) -> None:
        """To the newest worker process of a machine."""
        os.kill(self.pids[machine][local_rank], number)


def run(
    arguments: list[str],
    scenario: Scenario | None = None,
    *,
    until_done: bool = False,
    machines: int = 3,
    standbys: int = 1,
    nproc: int = 1,
    drill: str = "",
    script: str = TRAIN,
    comm: str = "",
    **others: Any,
) -> Outcomes:
    """One job from start to end, in private directories. others: fields of RunOptions.

    until_done  train.py ends when the scenario has, however many steps that takes
    """
    with tempfile.TemporaryDirectory(prefix="tm-e2e-") as folder:
        if until_done:
            arguments = [*arguments, "--steps", "100000", "--until", f"{folder}/done"]
            scenario = _telling(scenario, Path(folder, "done"))
        hosting = _Hosting(scenario)
        before = os.environ.pop("TRAINMOVER_DRILL", None)
        if drill:
            os.environ["TRAINMOVER_DRILL"] = drill
        try:
            result = run_job(
                RunOptions(
                    argv=[script, *arguments],
                    machines=machines,
                    standbys=standbys,
                    nproc=nproc,
                    comm=comm or os.environ.get(COMM) or communicators.default(),
                    exact=True,
                    **others,
                    log=LogSpec(show=[0]),
                    run_dir=Path(folder) / "run",
                    journal=Path(folder) / "journal.sqlite",
                ),
                on_change=hosting.changed,
                on_ready=hosting.ready,
                fork_server=_fork_server(),
            )
        finally:
            os.environ.pop("TRAINMOVER_DRILL", None)
            if before is not None:
                os.environ["TRAINMOVER_DRILL"] = before
        hosting.check()
        print("\n".join(hosting.sentences))  # seen where the test fails
        journal = Journal.open(Path(folder) / "journal.sqlite")
        last = max((step for step, _ in result.job.finished.values()), default=1 << 62)
        rows = {(row.rank, row.step): row.values for row in journal.rows() if row.step <= last}
        used = [one for one in journal.used() if one.step <= last]
        journal.close()
    digests = {rank: digest for rank, (_, digest) in result.job.finished.items()}
    return Outcomes(
        result.code,
        result.text,
        result.job,
        rows,
        digests,
        hosting.printed,
        hosting.sentences,
        used,
    )


def _telling(scenario: Scenario | None, done: Path) -> Scenario:
    async def telling(live: Live) -> None:
        assert scenario is not None
        await scenario(live)
        done.touch()

    return telling


@cache
def _fork_server() -> ForkServerProcess:
    """One import of torch for all jobs of the session; it ends with this process."""
    return ForkServerProcess()


def _limit_s() -> float:
    """Below the limit of a test, which ends the process and says nothing of the job."""
    return float(os.environ.get(LIMIT, "150"))


class _Hosting:
    def __init__(self, scenario: Scenario | None) -> None:
        self._scenario = scenario
        self._live: Live | None = None
        self._task: asyncio.Task[None] | None = None
        self.printed: list[str] = []
        self.sentences: list[str] = []

    def ready(self, handle: RunHandle) -> None:
        self._live = Live(handle, self.sentences)
        self._watching = asyncio.ensure_future(self._watch(Live(handle, changed=self._live.quiet)))
        asyncio.get_running_loop().call_later(_limit_s(), self._too_long, self._live)
        if self._scenario is not None:
            self._task = asyncio.ensure_future(self._scenario(self._live))
            self._task.add_done_callback(lambda task: self._over(task, handle))

    async def _watch(self, live: Live) -> None:
        """A job in which nothing happens any more is stopped and described."""
        while True:
            live.changed.clear()
            try:
                await asyncio.wait_for(live.changed.wait(), QUIET_S)
            except TimeoutError:
                self._stop(live, f"nothing happened for {QUIET_S} s")
                return

    def _too_long(self, live: Live) -> None:
        self._stop(live, f"it was not over after {_limit_s()} s, at step {live.step()}")

    def _stop(self, live: Live, text: str) -> None:
        print(live.job)
        live.handle.stop(98, text)

    def _over(self, task: "asyncio.Task[None]", handle: RunHandle) -> None:
        if not task.cancelled() and task.exception() is not None:
            handle.stop(99, f"the scenario failed: {task.exception()!r}")

    def changed(self, notice: object, handle: RunHandle) -> None:
        match notice:
            case Printed(text=text):
                self.printed.append(text)
            case Happened():
                if notice.text:
                    self.sentences.append(notice.text)
                if self._live is not None:
                    self._live.note(notice.event)
        if self._live is not None:
            self._live.changed.set()
            self._live.quiet.set()

    def check(self) -> None:
        if self._task is not None and self._task.done() and not self._task.cancelled():
            error = self._task.exception()
            if error is not None:
                print("\n".join(self.sentences[-30:]))
                raise error


def assert_equal_runs(disturbed: Outcomes, undisturbed: Outcomes) -> None:
    """Bit for bit: every committed value of every rank, and the final state."""
    assert undisturbed.code == 0, undisturbed.text
    assert disturbed.code == 0, (disturbed.text, disturbed.sentences)
    assert disturbed.rows.keys() ^ undisturbed.rows.keys() == set(), disturbed.sentences
    differing = [key for key, row in undisturbed.rows.items() if disturbed.rows[key] != row]
    assert not differing, (sorted(differing, key=lambda k: k[1])[:3], disturbed.sentences)
    assert disturbed.used == undisturbed.used
    assert disturbed.digests == undisturbed.digests
