# SPDX-License-Identifier: Apache-2.0
"""Jobs with machines that are slowed at known steps, and what they have lost by that."""

import asyncio
import random
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.straggler.hosts import FREE, HERE, SLOW, Hosts
from bench.straggler.slowing import Slowing
from trainmover.controller.change.incidents import lately
from trainmover.controller.events import SlowFound, WorkerSaid
from trainmover.controller.state import Job, Outcome
from trainmover.ids import MachineId
from trainmover.journal import Journal
from trainmover.launch.run_job import RunHandle, RunOptions, run_job
from trainmover.protocol.messages import LogSpec, WorkerUp
from trainmover.server.view.notices import Happened, Notice

SCRIPT = Path(__file__).with_name("job.py")
MACHINES = 4
LIMIT_S = 400.0
EVERY = 50
KINDS = ("machine", "rank", "network")
KNOWN = 60
"""Steps before the first: until then nobody knows what is usual."""
LARGE = ("--width", "6000")
"""0.4 MB of gradients: what a way between machines is slow by."""


@dataclass
class Episode:
    """One machine, or rank, that was slowed at `step`. found: what was, first."""

    kind: str
    machine: str
    step: int
    found: SlowFound | None = None

    @property
    def steps(self) -> int | None:
        return None if self.found is None else self.found.step - self.step


@dataclass
class Ran:
    """gaps_ms: of each step from `first` on, by rank 0's commits."""

    first: int
    gaps_ms: list[float]
    episodes: list[Episode]
    pauses_ms: list[float] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    findings: int = 0

    @property
    def usual_ms(self) -> float:
        return statistics.median(self.gaps_ms[: EVERY - 2])

    def lost(self, since: int) -> float:
        """The part of all time that steps from there on took more than is usual."""
        more_ms = sum(gap - self.usual_ms for gap in self.gaps_ms[since:])
        return more_ms / sum(self.gaps_ms)


class Live:
    """A job under way."""

    def __init__(self, handle: RunHandle, heavy: Path) -> None:
        self.handle, self.heavy = handle, heavy
        self.changed = asyncio.Event()
        self.pids: dict[str, int] = {}
        self.episodes: list[Episode] = []
        self.findings = 0
        self.slowing: Slowing | None = None

    @property
    def job(self) -> Job:
        return self.handle.server.job

    @property
    def step(self) -> int:
        return self.handle.server.progress.newest

    async def until(self, fact: Callable[[], bool]) -> None:
        while not fact():
            self.changed.clear()
            await self.changed.wait()

    async def ready(self) -> None:
        """All standbys hold a run, and the job has settled."""
        spare = lambda: [m for m in self.job.machines.values() if m.id not in self.job.seats]  # noqa: E731
        await self.until(lambda: self.job.all_recorded and all(m.held is not None for m in spare()))
        begun = self.step
        await self.until(lambda: self.step >= begun + 10)

    def slow_down(self, machine: MachineId) -> None:
        self.episodes.append(Episode("machine", machine, self.step))
        self.slowing = Slowing(self.pids[machine])

    def weigh_down(self, rank: int) -> None:
        self.episodes.append(Episode("rank", self.job.seats[rank], self.step))
        told = self.heavy.with_name("told")  # Its readers see all of it or nothing.
        told.write_text(str(rank))
        told.rename(self.heavy)

    def hold_up(self, one: str, other: str, hosts: Hosts) -> Callable[[], None]:
        """What is sent between two machines. Returns what ends that."""
        self.episodes.append(Episode("network", f"{one} - {other}", self.step))
        hosts.limit(one, other, SLOW)
        return lambda: hosts.limit(one, other, FREE)

    def relieve(self) -> None:
        self.heavy.unlink(missing_ok=True)
        if self.slowing is not None:
            self.slowing.end()
        self.slowing = None

    def note(self, notice: Notice) -> None:
        if isinstance(notice, Happened):
            event = notice.event
            if isinstance(event, WorkerSaid) and isinstance(event.fact, WorkerUp):
                self.pids[event.machine] = event.fact.pid
            if isinstance(event, SlowFound):
                self.findings += 1
                if self.episodes and self.episodes[-1].found is None:
                    self.episodes[-1].found = event
        self.changed.set()


Story = Callable[[Live], Awaitable[int]]
"""Does something to a job; the step from which it counts."""


def play(
    story: Story,
    *,
    policy: str,
    standbys: int,
    hosts: Hosts | None = None,
    machines: int = MACHINES,
) -> Ran:
    """One job; on machines of this host, or each with a network of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-slow-") as folder:
        heavy, journal = Path(folder, "heavy"), Path(folder, "journal.sqlite")
        options = RunOptions(
            argv=[str(SCRIPT), "--heavy", str(heavy), *(() if hosts is None else LARGE)],
            machines=machines,
            standbys=standbys,
            journal=journal,
            stragglers=policy,
            log=LogSpec(show=[]),
            bind="" if hosts is None else f"{HERE}:0",
        )
        player = _Player(story, heavy, hosts)
        result = run_job(options, on_change=player.changed, on_ready=player.ready)
        if player.first is None:
            raise RuntimeError(f"the story did not come to its end: {result.text}")
        with Journal.open(journal) as source:
            at_us = {row.step: row.at_us for row in source.rows() if row.rank == 0}
    assert player.live is not None
    steps = [step for step in sorted(at_us) if step > player.first]
    gaps = [(at_us[step] - at_us[step - 1]) / 1000 for step in steps]  # type: ignore[index]
    done = [one for one in lately(result.job) if one.outcome is Outcome.DONE]
    return Ran(
        player.first,
        gaps,
        player.live.episodes,
        [one.downtime_ms or 0.0 for one in done],
        [str(move.effect) for move in result.job.stragglers.moves],
        player.live.findings,
    )


class _Player:
    def __init__(self, story: Story, heavy: Path, hosts: Hosts | None) -> None:
        self._story, self._heavy, self._hosts = story, heavy, hosts
        self.live: Live | None = None
        self.first: int | None = None
        self._task: asyncio.Task[None] | None = None

    def ready(self, handle: RunHandle) -> None:
        self.live = self.live or Live(handle, self._heavy)
        if self._hosts is not None:
            self._hosts.start_agents(handle.run.controller, handle.run.token_file)
        asyncio.get_running_loop().call_later(LIMIT_S, handle.stop, 1, f"{LIMIT_S:.0f} s are over")
        self._task = asyncio.ensure_future(self._tell(self.live))

    async def _tell(self, live: Live) -> None:
        try:
            self.first = await self._story(live)
        finally:
            live.relieve()
            live.handle.stop(0, "the bench has what it wants")

    def changed(self, notice: Notice, handle: RunHandle) -> None:
        self.live = self.live or Live(handle, self._heavy)
        self.live.note(notice)


def one_at(since: int, steps: int) -> Story:
    """As in Fig. 13: so many steps, and from the one numbered `since` on one machine is slow."""

    async def story(live: Live) -> int:
        await live.ready()
        first = live.step
        await live.until(lambda: live.step >= first + since)
        live.slow_down(live.job.seats[len(live.job.seats) // 2])
        await live.until(lambda: live.step >= first + steps)
        return first

    return story


def every_50th(times: int, seed: int) -> Story:
    """As in Fig. 14: from each 50th step on some machine with ranks is slow, until the next is. An
    operator takes the cordon off one that is not slow any more."""

    async def story(live: Live) -> int:
        chance = random.Random(seed)
        await live.ready()
        first = live.step
        for number in range(1, times + 1):
            await live.until(lambda: live.step >= first + number * EVERY)  # noqa: B023
            live.relieve()
            for machine in list(live.job.cordoned):
                await live.handle.server.uncordon(machine)
            live.slow_down(chance.choice(live.job.seats))
        await live.until(lambda: live.step >= first + (times + 1) * EVERY)
        return first

    return story


def of_kinds(times: int, seed: int, hosts: Hosts | None = None) -> Story:
    """A machine, a rank, and where it can be the way between two machines, each slow for a while;
    then nobody is."""

    async def story(live: Live) -> int:
        chance = random.Random(seed)
        await live.ready()
        first = live.step
        await live.until(lambda: live.step >= first + KNOWN)
        for number in range(times):
            one, other = chance.sample(live.job.seats, 2)
            relieve = live.relieve
            match KINDS[number % (2 if hosts is None else 3)]:
                case "machine":
                    live.slow_down(one)
                case "rank":
                    live.weigh_down(live.job.seats.index(one))
                case _:
                    assert hosts is not None
                    relieve = live.hold_up(one, other, hosts)
            begun, episode = live.step, live.episodes[-1]
            await live.until(lambda: episode.found is not None or live.step >= begun + 40)  # noqa: B023
            relieve()
            begun = live.step
            await live.until(lambda: live.step >= begun + 25)  # noqa: B023
        return first

    return story
