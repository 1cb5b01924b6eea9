# SPDX-License-Identifier: Apache-2.0
"""One of four ranks is killed or stopped in the middle of an all_reduce: when are the others out?

Killed: from the signal to the last survivor's error; nobody tells them. Stopped: no library can
know; from the moment when the survivors are told (by a byte in a pipe, whereupon a thread of each
calls abort) to the last survivor's error. The clock is the host's, one for all processes.

What the kernel takes to end a process is not ours. So the parent, who has a socket to the victim
too, says when the kernel closed it: after it has taken the memory apart, and a connection can tell
of a death only then. Beside them such a socket alone, to a process of nothing but torch.
"""

import os
import random
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from bench.collectives.arms import Arm, GlooArm, NativeArm, buffers
from bench.collectives.crew import Crew
from bench.collectives.meeting import Meeting

RANKS = 4
SIZE_BYTES = 1 << 20
ARMS = ("ours shm", "ours tcp", "gloo")
SOCKET = "a socket alone"
KINDS = ("killed", "stopped")
GLOO_S = 3.0  # its timeout: what ends a wait that nothing else ends
STOPPED_S = 0.03


@dataclass(frozen=True)
class Trial:
    """out_ms: of the survivors in seat order. errors: their types.

    kernel_ms  until the victim's sockets were closed; 0 if it was not killed
    """

    out_ms: tuple[float, ...]
    errors: tuple[str, ...]
    kernel_ms: float = 0.0

    @property
    def last_ms(self) -> float:
        return max(self.out_ms)


@dataclass
class Aborts:
    """trials by arm and kind, in the order they were made."""

    trials: dict[tuple[str, str], list[Trial]] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)

    def last_ms(self, arm: str, kind: str) -> list[float]:
        return [trial.last_ms for trial in self.trials.get((arm, kind), [])]

    def median_ms(self, arm: str, kind: str) -> float:
        return statistics.median(self.last_ms(arm, kind))

    def beyond_ms(self, arm: str) -> list[float]:
        """After the kernel had closed a killed one's sockets; below 0 where memory told before."""
        trials = self.trials.get((arm, "killed"), [])
        return [trial.last_ms - trial.kernel_ms for trial in trials]


@dataclass(frozen=True)
class Plan:
    trials: int
    gloo_trials: int


class Holder:
    """In a process: nothing but torch and the end of a socket."""

    def __init__(self, _seat: int) -> None:
        pass

    def touch(self) -> None:
        torch.ones(SIZE_BYTES // 4)


class Survivor:
    """In a process: one rank that calls all_reduce until it raises. told: a pipe's reading end."""

    def __init__(self, seat: int, arm: str, told: int) -> None:
        self._seat, self._arm, self._told = seat, arm, told
        self._native: NativeArm | None = None
        self._meeting = Meeting()

    def open(self) -> bytes | int | None:
        """Its card; for gloo, seat 0's port of the store."""
        if self._arm == "gloo":
            return self._meeting.serve() if self._seat == 0 else None
        host = "one host" if self._arm == "ours shm" else f"host {self._seat}"
        self._native = NativeArm(self._seat, RANKS, host)
        return self._native.card()

    def join(self, opened: list[bytes | int | None]) -> None:
        """Connected, and one all_reduce done."""
        if (native := self._native) is not None:
            native.join([card for card in opened if isinstance(card, bytes)])
            self._prepare(native, lambda: native.group.abort("told to"))
        else:
            self._meeting.visit(int(opened[0] or 0))
            gloo = GlooArm(self._seat, RANKS, self._meeting.room("abort"), GLOO_S)
            self._prepare(gloo, gloo.group.abort)

    def spin(self) -> tuple[int, str]:
        """Nanoseconds of the host's clock when a call raised, and what."""
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            while True:
                self._call()
        except (RuntimeError, OSError) as failed:
            return time.monotonic_ns(), type(failed).__name__

    def _prepare(self, arm: Arm, abort: Callable[[], object]) -> None:
        self._abort = abort
        self._held = buffers(self._seat, RANKS, SIZE_BYTES)
        self._held.whole.zero_()
        self._call = arm.call("all_reduce", self._held)
        self._call()

    def _listen(self) -> None:
        if os.read(self._told, 1):
            self._abort()


def run(plan: Plan) -> Aborts:
    """Arms in turns, a crew of its own for every trial; the same victims and moments for all."""
    aborts = Aborts()
    chance = random.Random(4)
    for turn in range(plan.trials):
        victim, after_s = chance.randrange(RANKS), chance.uniform(0.02, 0.06)
        for arm in ARMS:
            if arm == "gloo" and turn >= plan.gloo_trials:
                continue
            for kind in KINDS:
                trial = one_trial(arm, kind, victim=victim, after_s=after_s)
                aborts.trials.setdefault((arm, kind), []).append(trial)
        aborts.trials.setdefault((SOCKET, "killed"), []).append(socket_trial())
        aborts.loads.append(os.getloadavg()[0])
        print(f"abort, trial {turn + 1}: load {aborts.loads[-1]:.1f}", file=sys.stderr, flush=True)
    return aborts


def socket_trial() -> Trial:
    """From SIGKILL to the end of file at the other end."""
    ours, theirs = socket.socketpair()
    with ours, Crew(1, Holder) as crew:
        crew.one(0, "touch")
        theirs.close()
        since = time.monotonic_ns()
        os.kill(crew.pids[0], signal.SIGKILL)
        ours.recv(1)
        return Trial(((time.monotonic_ns() - since) / 1e6,), ("end of file",))


def one_trial(arm: str, kind: str, *, victim: int, after_s: float) -> Trial:
    pipes = [os.pipe() for _ in range(RANKS)]
    survivors = [seat for seat in range(RANKS) if seat != victim]
    kernel_ms = 0.0
    try:
        with Crew(RANKS, lambda seat: Survivor(seat, arm, pipes[seat][0])) as crew:
            crew.all("join", crew.all("open"))
            for seat in range(RANKS):
                crew.ask(seat, "spin")
            time.sleep(after_s)  # not awaited: the moment is to be any
            if kind == "killed":
                since = time.monotonic_ns()
                os.kill(crew.pids[victim], signal.SIGKILL)
                kernel_ms = (crew.await_end(victim) - since) / 1e6
            else:
                os.kill(crew.pids[victim], signal.SIGSTOP)
                time.sleep(STOPPED_S)
                since = time.monotonic_ns()
                for seat in survivors:
                    os.write(pipes[seat][1], b"!")
            answers = [crew.answer(seat) for seat in survivors]
    finally:
        for end in (end for pair in pipes for end in pair):
            os.close(end)
    out_ms = tuple((raised - since) / 1e6 for raised, _ in answers)
    return Trial(out_ms, tuple(error for _, error in answers), kernel_ms)
