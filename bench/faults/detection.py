# SPDX-License-Identifier: Apache-2.0
"""From the moment something dies or stands still to the moment the controller knows.

One job is disturbed again and again, each time when it has settled. Both moments are of one clock:
when the fault was made, by this process, and the time of the event in which the controller heard of
it, in this process too. Lost machines are replaced by fresh ones.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from trainmover.controller.change.incidents import lately
from trainmover.controller.events import AgentSaid, MachinesLost, WorkerSaid
from trainmover.controller.state import Job, MachineState, Outcome
from trainmover.launch.late import LateMachine, start_late
from trainmover.launch.run_job import RunHandle, RunOptions, run_job
from trainmover.protocol.messages import Interrupted, LogSpec, WorkerExited, WorkerUp
from trainmover.server.view.notices import Happened, Notice

SCRIPT = Path(__file__).resolve().parents[2] / "tests" / "e2e" / "train.py"
MACHINES, STANDBYS = 3, 2
PACE_S = 0.01
SETTLE_STEPS = 45
"""Undisturbed steps before each fault: a rank learns its own deadline from 32."""
LIMIT_S = 900.0
READY = (MachineState.WARM, MachineState.HOLDING)
EXIT, AGENT, MACHINE = "worker killed", "agent killed", "machine killed"
FROZEN, STUCK = "machine frozen", "rank stuck"
NAMED = "and it is known whose"
"""Peers see the death of a worker while the kernel still takes down its memory; the end of the
process, which its agent sees, comes after that."""
KINDS = (EXIT, STUCK, AGENT, MACHINE, FROZEN)


class Measured:
    """Milliseconds by kind, in the order they were measured. step_ms: medians, at each fault."""

    def __init__(self) -> None:
        self.detect_ms: dict[str, list[float]] = {kind: [] for kind in (*KINDS, NAMED)}
        self.step_ms: list[float] = []
        self.loads: list[float] = []


def measure(
    kinds: Sequence[str],
    said: Callable[[str], None],
    machines: int = MACHINES,
    standbys: int = STANDBYS,
) -> Measured:
    """One job with these faults, in order. Raises RuntimeError if it does not end well."""
    with tempfile.TemporaryDirectory(prefix="bench-faults-") as folder:
        stall = Path(folder) / "stall"
        stall.mkdir()
        bench = _Bench(kinds, stall, said, machines + standbys)
        arguments = ["--steps", "1000000", "--pace", str(PACE_S), "--stall", str(stall)]
        options = RunOptions(
            argv=[str(SCRIPT), *arguments],
            machines=machines,
            standbys=standbys,
            restarts_max=1000,
            log=LogSpec(show=[]),
            run_dir=Path(folder) / "run",
        )
        result = run_job(options, on_change=bench.changed, on_ready=bench.ready)
        bench.collect()
    if result.code or bench.failed:
        raise RuntimeError(f"the job ended with {result.code}: {bench.failed or result.text}")
    return bench.measured


class _Bench:
    """Callbacks of one job, and the task that disturbs it."""

    def __init__(
        self, kinds: Sequence[str], stall: Path, said: Callable[[str], None], machines: int
    ) -> None:
        self.measured = Measured()
        self.failed = ""
        self._kinds = kinds
        self._stall = stall
        self._machines = machines
        self._said = said
        self._workers: dict[str, int] = {}
        self._happened: list[Happened] = []
        self._late: list[LateMachine] = []
        self._frozen: list[int] = []
        self._more = asyncio.Event()

    def ready(self, handle: RunHandle) -> None:
        self._handle = handle
        self._task = asyncio.ensure_future(self._disturb())

    def changed(self, notice: Notice, handle: RunHandle) -> None:
        if isinstance(notice, Happened):
            self._happened.append(notice)
            event = notice.event
            if isinstance(event, WorkerSaid) and isinstance(event.fact, WorkerUp):
                self._workers[event.machine] = event.fact.pid
        self._more.set()

    def collect(self) -> None:
        """Machines that were added were our children, and end with the job."""
        for machine in self._late:
            machine.process.wait()

    async def _disturb(self) -> None:
        faults = {
            EXIT: self._kill_worker,
            AGENT: self._kill_agent,
            MACHINE: self._kill_machine,
            FROZEN: self._freeze,
            STUCK: self._let_loop,
        }
        try:
            async with asyncio.timeout(LIMIT_S):
                for kind in self._kinds:
                    await self._settled()
                    self._note_step()
                    took_ms = await faults[kind](self._job.seats[1])
                    self.measured.detect_ms[kind].append(took_ms)
                    self._said(f"{kind:<16}{took_ms:8.1f} ms")
                    self._mend()
                await self._settled()
        except (TimeoutError, OSError) as error:
            self.failed = repr(error)
        self._handle.stop(0, "the bench has what it wants")

    # --- faults: milliseconds to their detection ---

    async def _kill_worker(self, machine: str) -> float:
        first, begun_us = len(self._happened), time.time_ns() // 1000
        self._kill(self._workers[machine])
        await self._until(lambda: any(_has_exited(h, machine) for h in self._happened[first:]))
        after = self._happened[first:]
        named = next(h for h in after if _has_exited(h, machine))
        noticed = next(h for h in after if h is named or _is_felt(h))
        self.measured.detect_ms[NAMED].append((named.at_us - begun_us) / 1000.0)
        return (noticed.at_us - begun_us) / 1000.0

    async def _kill_agent(self, machine: str) -> float:
        agent = _agent(machine)
        return await self._after(lambda: self._kill(agent), _is_lost, machine)

    async def _kill_machine(self, machine: str) -> float:
        pids = (_agent(machine), self._workers[machine])
        return await self._after(lambda: self._kill(*pids), _is_lost, machine)

    async def _freeze(self, machine: str) -> float:
        self._frozen = [_agent(machine), self._workers[machine]]
        return await self._after(
            lambda: self._kill(*self._frozen, number=signal.SIGSTOP), _is_lost, machine
        )

    async def _let_loop(self, machine: str) -> float:
        """In user code, from the moment its order is gone."""
        order, incidents = self._stall / machine, len(lately(self._job))
        order.write_text("loop")
        while order.exists():
            await asyncio.sleep(0.0005)
        begun_us = time.time_ns() // 1000
        await self._until(lambda: len(lately(self._job)) > incidents)
        return (lately(self._job)[incidents].marks["detect"] - begun_us) / 1000.0

    async def _after(
        self, strike: Callable[[], None], seen: Callable[[Happened, str], bool], machine: str
    ) -> float:
        first, begun_us = len(self._happened), time.time_ns() // 1000
        strike()
        await self._until(lambda: any(seen(h, machine) for h in self._happened[first:]))
        event = next(h for h in self._happened[first:] if seen(h, machine))
        return (event.at_us - begun_us) / 1000.0

    def _kill(self, *pids: int, number: int = signal.SIGKILL) -> None:
        for pid in pids:
            os.kill(pid, number)

    # --- in between ---

    @property
    def _job(self) -> Job:
        return self._handle.server.job

    def _note_step(self) -> None:
        self.measured.step_ms.append(self._handle.server.progress.step_ms or 0.0)
        self.measured.loads.append(os.getloadavg()[0])

    def _mend(self) -> None:
        """End what is only frozen, and bring a machine for each that is gone."""
        for pid in self._frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._frozen = []
        for _ in range(self._machines - len(self._job.machines)):
            self._late.append(start_late(self._handle.run, list(self._job.machines)))

    async def _settled(self) -> None:
        """Until so many steps have followed the last incident and a standby is warm."""
        await self._until(self._quiet)
        step = self._handle.server.progress.step
        await self._until(lambda: self._handle.server.progress.step >= step + SETTLE_STEPS)
        await self._until(self._quiet)

    def _quiet(self) -> bool:
        job = self._job
        open_ones = any(i.outcome is Outcome.OPEN for i in job.incidents)
        warm = any(machine.state in READY for machine in job.machines.values())
        return job.all_recorded and job.change is None and not open_ones and warm

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._more.clear()
            await self._more.wait()


def _has_exited(happened: Happened, machine: str) -> bool:
    event = happened.event
    exited = isinstance(event, AgentSaid) and isinstance(event.fact, WorkerExited)
    return exited and event.machine == machine  # type: ignore[union-attr]


def _is_felt(happened: Happened) -> bool:
    """By a peer of it."""
    event = happened.event
    return isinstance(event, WorkerSaid) and isinstance(event.fact, Interrupted)


def _is_lost(happened: Happened, machine: str) -> bool:
    event = happened.event
    return isinstance(event, MachinesLost) and machine in {one.machine for one in event.lost}


def _agent(machine: str) -> int:
    """The process of a machine's agent, a child of ours."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline()).split()
            if "trainmover.agent" in line and machine in line:
                return process.pid
    raise ProcessLookupError(f"{machine} has no agent")
