"""What state processes are in, and where their threads stand: seen on real ones."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainmover.agent.workers import states as looking
from trainmover.agent.workers.stacks import take_stack
from trainmover.agent.workers.states import (
    BEATS_DEAF,
    BEATS_DEAF_MAX,
    Changed,
    States,
    kernel_state,
)
from trainmover.ids import MachineId
from trainmover.listeners.reach import REACH_S, reached
from trainmover.state.vault import Vault, address_of, serve

SLEEPER = "import time\nprint('up', flush=True)\ntime.sleep(600)"
STACKS = """
import ctypes, faulthandler, sys
from trainmover.lifeline import STACK_SIGNAL
faulthandler.register(STACK_SIGNAL, file=open(sys.argv[1], "a"), all_threads=True)
def deep_inside():
    print("up", flush=True)
    ctypes.PyDLL(None).sleep(600)
deep_inside()
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started = []

    def begin(source: str, *args: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", source, *args]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def until(fact: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 20
    while not fact():
        assert time.monotonic() < give_up
        time.sleep(0.002)


def beats(states: States, pid: int, count: int = 1, *, live: bool = True) -> list[Changed]:
    return [changed for _ in range(count) for changed in states.look({0: pid}, live=live)]


def pulse_file(tmp_path: Path, count: int, mark: int = 1) -> Path:
    path = tmp_path / "pulse"
    path.write_bytes(bytes([mark]) + bytes(7) + count.to_bytes(8, "little"))
    return path


def test_a_stopped_process_is_told_of_and_one_that_goes_on(tmp_path: Path, start: Any) -> None:
    pid = start(SLEEPER).pid
    states = States(lambda local_rank: tmp_path / "none")
    assert beats(states, pid, 3) == []
    os.kill(pid, signal.SIGSTOP)
    until(lambda: kernel_state(pid) == "T")
    assert [(c.local_rank, c.pid, c.state) for c in beats(states, pid, 3)] == [(0, pid, "stopped")]
    os.kill(pid, signal.SIGCONT)
    until(lambda: kernel_state(pid) != "T")
    assert [changed.state for changed in beats(states, pid, 3)] == [""]


def test_a_process_without_a_pulse_is_deaf_in_a_quick_step(tmp_path: Path) -> None:
    states = States(lambda local_rank: pulse_file(tmp_path, 7))
    assert beats(states, os.getpid(), BEATS_DEAF) == []
    assert [c.state for c in beats(states, os.getpid())] == ["deaf"]
    states = States(lambda local_rank: pulse_file(tmp_path, 7))
    assert beats(states, os.getpid(), 50, live=False) == []


def test_elsewhere_it_may_be_deaf_for_a_minute(tmp_path: Path) -> None:
    states = States(lambda local_rank: pulse_file(tmp_path, 7, mark=0))
    assert beats(states, os.getpid(), BEATS_DEAF_MAX) == []
    assert [c.state for c in beats(states, os.getpid())] == ["deaf"]


def test_before_its_first_pulse_nothing_is_known(tmp_path: Path) -> None:
    states = States(lambda local_rank: pulse_file(tmp_path, 0))
    assert beats(states, os.getpid(), 2 * BEATS_DEAF_MAX) == []


def test_one_that_went_on_gets_twice_the_time(tmp_path: Path) -> None:
    count = 7
    states = States(lambda local_rank: pulse_file(tmp_path, count))
    assert [c.state for c in beats(states, os.getpid(), BEATS_DEAF + 1)] == ["deaf"]
    count = 8
    assert [c.state for c in beats(states, os.getpid())] == [""]
    assert beats(states, os.getpid(), 2 * BEATS_DEAF - 1) == []
    assert [c.state for c in beats(states, os.getpid())] == ["deaf"]


@pytest.mark.parametrize(
    ("letter", "beats_until", "state"), [("D", 5, "blocked"), ("Z", 2, "headless")]
)
def test_what_the_kernel_shows_for_a_while(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, letter: str, beats_until: int, state: str
) -> None:
    monkeypatch.setattr(looking, "kernel_state", lambda pid: letter)
    states = States(lambda local_rank: tmp_path / "none")
    assert beats(states, 1, beats_until - 1) == []
    assert [changed.state for changed in beats(states, 1)] == [state]


def test_another_process_begins_anew(tmp_path: Path) -> None:
    states = States(lambda local_rank: pulse_file(tmp_path, 7))
    beats(states, os.getpid(), BEATS_DEAF)
    assert beats(states, os.getppid(), BEATS_DEAF) == []


def told(pid: int, file: Path) -> str:
    """What is said of the stack of a process."""

    async def ask() -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        worker: Any = SimpleNamespace(pid=pid, signal=lambda number: os.kill(pid, number))
        take_stack(worker, file, answer.set_result)
        return await asyncio.wait_for(answer, 20)

    return asyncio.run(ask())


def test_the_stack_of_a_process_that_holds_the_interpreter(tmp_path: Path, start: Any) -> None:
    file = tmp_path / "stacks"
    process = start(STACKS, str(file))
    assert "in deep_inside" in told(process.pid, file)


def test_a_stopped_process_has_no_stack_but_a_state(tmp_path: Path, start: Any) -> None:
    process = start(SLEEPER)
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: kernel_state(process.pid) == "T")
    assert told(process.pid, tmp_path / "none").startswith("The process is stopped (state T")


def test_one_that_is_not_prepared_is_not_signalled(tmp_path: Path, start: Any) -> None:
    process = start(SLEEPER)
    assert "not prepared" in told(process.pid, tmp_path / "none")
    assert process.poll() is None


def test_only_machines_that_answer_are_reached() -> None:
    """One has a vault, one is gone, and one takes connections and says nothing."""

    async def ask() -> tuple[list[MachineId], float]:
        server = await serve(Vault(1000), b"token")
        with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as gone:
            gone.bind(("127.0.0.1", 0))
            places = {
                MachineId(name): f"127.0.0.1:{sock.getsockname()[1]}"
                for name, sock in (("m2", silent), ("m3", gone))
            }
            began = time.monotonic()
            found = await reached({MachineId("m1"): address_of(server), **places})
            took_s = time.monotonic() - began
        server.close()
        return found, took_s

    found, took_s = asyncio.run(ask())
    assert found == ["m1"]
    assert took_s < 20 * REACH_S


def test_killings_for_want_of_memory_are_counted() -> None:
    assert looking.out_of_memory_kills() >= 0
    assert looking._count(Path("/proc/vmstat"), "pgfault")
    assert looking._count(Path("/proc/vmstat"), "no such line") is None
