# SPDX-License-Identifier: Apache-2.0
"""torchrun as the baseline: four agents on one host, one rank each, c10d rendezvous.

It is treated kindly: the replacement agent starts at the instant of the kill, with no image to pull
and no queue; agents look at their workers every 0.1 s; checkpoints are small and on local disk. A
planned stop is a save and a restart of the workers where they are: what a drained machine costs at
the least, since no machine is even exchanged.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from bench.gaps import Gap, Mark, worst_gap
from bench.ports import free_port
from trainmover.lifeline import die_with

CHECKPOINT_EVERY = 10
MACHINES = 4
ROOT = Path(__file__).resolve().parents[1]


class TorchrunJob:
    """One running job. `close` ends whatever it has started; so does the death of this process."""

    def __init__(self, here: Path, job_args: Sequence[str], machines: int) -> None:
        self.here = here
        self.machines, self.drained = machines, machines // 2
        self._job_args = job_args
        self._port = free_port()
        self._started = 0
        self._agents = [self._agent(host=index == 0) for index in range(machines)]

    def marks(self) -> list[Mark]:
        """Every completed step of every process so far."""
        lines: list[str] = []
        for path in self.here.glob("steps.*"):
            whole, _, _ = path.read_text().rpartition("\n")
            lines += whole.splitlines()
        return [Mark(*map(int, line.split())) for line in lines]

    def wait(self, done: Callable[[list[Mark]], bool], limit_s: float) -> list[Mark]:
        """The marks once `done` says so. Raises TimeoutError with the agents' last words."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            marks = self.marks()
            if done(marks):
                return marks
            time.sleep(0.1)
        logs = [path.read_text()[-500:] for path in sorted(self.here.glob("agent.*"))]
        raise TimeoutError("torchrun did not get there:\n" + "\n".join(logs))

    def between_checkpoints(self) -> int:
        """Wait until the job stands half way between two checkpoints; the newest step."""
        half = CHECKPOINT_EVERY // 2
        first = max((mark.step for mark in self.marks()), default=0) + CHECKPOINT_EVERY
        marks = self.wait(
            lambda m: _newest(m) >= first and _newest(m) % CHECKPOINT_EVERY == half, 180
        )
        return _newest(marks)

    def unplanned(self) -> Gap:
        """Kill one machine, agent and worker at once; a new agent comes at once."""
        self.between_checkpoints()
        from_us = time.time_ns() // 1000
        _kill_with_children(self._agents[self.drained])
        self._agents[self.drained] = self._agent(host=False)
        return self._recovered(from_us)

    def planned(self) -> Gap:
        """Save at a boundary, let one worker leave, and restart from what was saved."""
        self.between_checkpoints()
        from_us = time.time_ns() // 1000
        (self.here / "drain").touch()
        return self._recovered(from_us)

    def close(self) -> None:
        for agent in self._agents:
            _kill_with_children(agent)
        _kill_marked(f"BENCH_DIR={self.here}")

    def _recovered(self, from_us: int) -> Gap:
        """The gap, once every stayer has done two steps in a new process."""
        stayers = [rank for rank in range(self.machines) if rank != self.drained]
        before = set(self.here.glob("steps.*"))

        def going_on(marks: list[Mark]) -> bool:
            fresh = [p for p in self.here.glob("steps.*") if p not in before]
            return sum(p.read_text().count("\n") >= 2 for p in fresh) >= self.machines

        marks = self.wait(going_on, 120)
        gap = worst_gap(marks, stayers=stayers, from_us=from_us, to_us=time.time_ns() // 1000)
        assert gap is not None
        return gap

    def _agent(self, *, host: bool) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={self.machines}"]
        command += ["--nproc-per-node=1", "--max-restarts=20", "--monitor-interval=0.1"]
        command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{self._port}"]
        command += ["--rdzv-id=bench", f"--rdzv-conf=is_host={int(host)}"]
        command += ["-m", "bench.torchrun_job", *self._job_args]
        environment = os.environ | {
            "BENCH_DIR": str(self.here),
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
            # With the shared store, 2.13 hangs after a restart on stale addresses of gloo.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        self._started += 1
        with (self.here / f"agent.{self._started}").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid()),
            )


@contextmanager
def torchrun_job(job_args: Sequence[str], machines: int = MACHINES) -> Iterator[TorchrunJob]:
    """A job that is gone afterwards, processes and files."""
    with tempfile.TemporaryDirectory(prefix="bench-torchrun-") as here:
        job = TorchrunJob(Path(here), job_args, machines)
        try:
            yield job
        finally:
            job.close()


def _newest(marks: list[Mark]) -> int:
    return max(marks, key=lambda mark: mark.at_us).step if marks else 0


def _kill_with_children(agent: "subprocess.Popen[bytes]") -> None:
    doomed = []
    with suppress(psutil.NoSuchProcess):
        doomed = psutil.Process(agent.pid).children(recursive=True)
    agent.kill()
    for process in doomed:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    agent.wait()


def _kill_marked(marker: str) -> None:
    """End strays of this job: processes that carry its private directory in their environment."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            name, _, value = marker.partition("=")
            if process.environ().get(name) == value:
                process.kill()
