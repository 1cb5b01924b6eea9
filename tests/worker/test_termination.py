"""What becomes of a process that gets SIGTERM, with no handler of its script's and with one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SRC = str(Path(__file__).resolve().parents[2] / "src")
SET_UP = """
import os, signal, subprocess, sys, threading, time
from trainmover.worker.termination import Termination, outlive_in_loaders
me, wait_s = os.getpid(), 0.2
termination = Termination(wait_s)
termination.watch()
"""
FOR_LONG = "\nfor _ in range(1000): time.sleep(0.01)\n"


def ended(program: str) -> tuple[int, str]:
    """Exit status and output of a process that runs it."""
    done = subprocess.run(
        [sys.executable, "-u", "-c", SET_UP + program], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": SRC}, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "program",
    [
        "os.kill(me, signal.SIGTERM); print('lives')" + FOR_LONG,
        "termination.end_ordered(); print('lives'); os.kill(me, signal.SIGTERM)" + FOR_LONG,
        # Of a stop: for long, but not if it is terminated again, or by its agent.
        "os.kill(me, signal.SIGTERM); termination.stop_seen(); time.sleep(2 * wait_s)"
        "; print('lives'); os.kill(me, signal.SIGTERM)" + FOR_LONG,
        "termination.stop_seen(); os.kill(me, signal.SIGTERM); time.sleep(2 * wait_s)"
        "; print('lives'); termination.end_ordered()" + FOR_LONG,
        # The main thread hears of no signal before its native call is over.
        "print('lives'); os.kill(me, signal.SIGTERM); lock = threading.Lock(); lock.acquire()"
        "; threading.Thread(target=lock.acquire, daemon=True).start(); lock.acquire()",
    ],
)
def test_it_ends_as_by_the_signal_when_it_is_time(program: str) -> None:
    assert ended(program) == (-signal.SIGTERM, "lives\n")


def test_the_handler_of_a_script_is_all_there_is() -> None:
    program = """
assert signal.getsignal(signal.SIGTERM) in (None, signal.SIG_DFL)
before = signal.signal(signal.SIGTERM, lambda *_: (print("asked"), before(*_)))
os.kill(me, signal.SIGTERM)
time.sleep(4 * wait_s)
signal.signal(signal.SIGTERM, before)
os.kill(me, signal.SIGTERM)
print("lives")
"""
    assert ended(program + FOR_LONG) == (-signal.SIGTERM, "asked\nlives\n")


def test_a_child_of_the_script_has_the_default_action() -> None:
    program = """
child = os.fork()
if child == 0:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
print(os.waitpid(child, 0)[1])
sleeper = subprocess.Popen(["sleep", "60"])
sleeper.terminate()
print(sleeper.wait())
"""
    assert ended(program) == (0, "15\n-15\n")


def test_processes_of_loaders_outlive_the_first_one_and_not_the_second() -> None:
    program = """
outlive_in_loaders()
from torch.utils.data import DataLoader
passes = iter(DataLoader(range(1000), num_workers=1))
print(next(passes).item())
(loader,) = passes._workers
os.kill(loader.pid, signal.SIGTERM)
print([next(passes).item() for _ in range(20)][-1])
os.kill(loader.pid, signal.SIGTERM)
try:
    list(passes)
except (RuntimeError, ConnectionError, EOFError):
    loader.join()
    print(loader.exitcode)
"""
    assert ended(program) == (0, "0\n20\n-15\n")
