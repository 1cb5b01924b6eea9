# SPDX-License-Identifier: Apache-2.0
"""Where the threads of a worker stand, asked for before it is ended.

The worker writes it from the handler of a signal, so it comes also from one that executes no
Python. One that is stopped cannot: then the kernel's word has to do.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from trainmover.agent.workers.processes import Worker
from trainmover.agent.workers.states import kernel_state, waits_in_kernel
from trainmover.lifeline import STACK_SIGNAL

POLL_S = 0.01
POLLS_MAX = 50
BYTES_MAX = 16 * 1024
_CANNOT = {"T": "stopped", "t": "held by a debugger", "D": "blocked in the kernel", "Z": "dying"}


def take_stack(worker: Worker, file: Path, told: Callable[[str], None]) -> None:
    """Call `told` once, within half a second, with the stack or why there is none."""
    letter = kernel_state(worker.pid)
    if letter in _CANNOT:
        where = waits_in_kernel(worker.pid)
        inside = f", in {where}" if where else ""
        told(f"The process is {_CANNOT[letter]} (state {letter}{inside}).")
        return
    _Taking(worker, file, told)


class _Taking:
    """Signals, and reads once what is written has stopped growing."""

    def __init__(self, worker: Worker, file: Path, told: Callable[[str], None]) -> None:
        self._file = file
        self._told = told
        self._before = self._size = _bytes_in(file)
        self._polls = 0
        if not file.exists():
            told("The process is not prepared to say where its threads are.")
            return
        worker.signal(STACK_SIGNAL)
        self._later()

    def _later(self) -> None:
        asyncio.get_running_loop().call_later(POLL_S, self._poll)

    def _poll(self) -> None:
        self._polls += 1
        size = _bytes_in(self._file)
        if size > self._before and size == self._size:
            self._told(_read(self._file, self._before))
        elif self._polls >= POLLS_MAX:
            self._told("The process did not say where its threads are.")
        else:
            self._size = size
            self._later()


def _bytes_in(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _read(file: Path, after: int) -> str:
    """The end of it if it is long: the main thread comes last."""
    with file.open("rb") as stacks:
        stacks.seek(max(after, _bytes_in(file) - BYTES_MAX))
        return stacks.read(BYTES_MAX).decode(errors="replace").strip()
