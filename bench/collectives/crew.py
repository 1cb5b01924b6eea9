# SPDX-License-Identifier: Apache-2.0
"""The processes of a bench: forked from a parent that has imported torch, so they start in a moment
and share its memory; every one of them ends with the `with` block, stopped ones included."""

import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Self

import torch

from trainmover import lifeline

ANSWER_S = 180.0


class CrewError(Exception):
    """A process raised, died or did not answer; the measurement is void."""


class Crew:
    """`size` processes, each with the object that `make(seat)` builds in it.

    A call names a method of that object. Calls to several seats run at the same time.
    """

    def __init__(self, size: int, make: Callable[[int], object]) -> None:
        self.size = size
        self.pids: list[int] = []
        self._make = make
        self._context = multiprocessing.get_context("fork")
        self._processes: list[Any] = []
        self._pipes: list[Connection[Any, Any]] = []

    def __enter__(self) -> Self:
        try:
            for seat in range(self.size):
                self._start(seat)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, seat: int, method: str, *arguments: object) -> None:
        """Start a call; `answer` has its result. Raises CrewError if the process is dead."""
        try:
            self._pipes[seat].send((method, arguments))
        except ConnectionError:
            raise CrewError(f"seat {seat} died") from None

    def answer(self, seat: int, timeout_s: float = ANSWER_S) -> Any:
        """What the call returned. Raises CrewError if it raised, or has no answer by then."""
        try:
            if not self._pipes[seat].poll(timeout_s):
                raise CrewError(f"seat {seat} gave no answer within {timeout_s:.0f} s")
            good, value = self._pipes[seat].recv()
        except (EOFError, ConnectionError):
            raise CrewError(f"seat {seat} died") from None
        if not good:
            raise CrewError(f"seat {seat} raised:\n{value}")
        return value

    def one(self, seat: int, method: str, *arguments: object) -> Any:
        """Call one seat, and wait for it."""
        self.ask(seat, method, *arguments)
        return self.answer(seat)

    def all(self, method: str, *arguments: object, seats: Iterable[int] | None = None) -> list[Any]:
        """Call the seats (or every one) with the same arguments; results in that order."""
        called = list(range(self.size) if seats is None else seats)
        return self.each(method, dict.fromkeys(called, arguments))

    def each(self, method: str, arguments: Mapping[int, tuple[object, ...]]) -> list[Any]:
        """Call every seat of `arguments` with its own; results in that order."""
        for seat, own in arguments.items():
            self.ask(seat, method, *own)
        return [self.answer(seat) for seat in arguments]

    def await_end(self, seat: int) -> int:
        """Nanoseconds of the host's clock when the kernel had closed what that process had open."""
        if not self._pipes[seat].poll(ANSWER_S):
            raise CrewError(f"seat {seat} does not end")
        return time.monotonic_ns()

    def _start(self, seat: int) -> None:
        ours, theirs = self._context.Pipe()
        arguments = (theirs, self._make, seat, os.getpid())
        process = self._context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        theirs.close()  # or we would never read the end of a process that died
        self._processes.append(process)
        self._pipes.append(ours)
        self.pids.append(process.pid or 0)

    def _end(self) -> None:
        """At once: the kernel takes sockets, memory and threads back, and there is nothing else."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        for pipe in self._pipes:
            pipe.close()


def _serve(pipe: "Connection[Any, Any]", make: Callable[[int], object], seat: int, by: int) -> None:
    """A process's life, until its parent ends it."""
    lifeline.die_with(by)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, who ends us
    torch.set_num_threads(1)
    gc.disable()  # a collection over all of torch in mid measurement takes milliseconds
    body: object = None
    while True:
        method, arguments = pipe.recv()
        try:
            body = make(seat) if body is None else body
            pipe.send((True, getattr(body, method)(*arguments)))
        except Exception:  # noqa: BLE001  the process's outermost loop: it becomes the answer
            pipe.send((False, traceback.format_exc()))
