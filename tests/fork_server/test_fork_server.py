"""Processes forked from a fork server: as if they had been started, and as if by us."""

import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from host_tools import environment, until, words_of

from trainmover.fork_server import Birth, Child, ForkServer
from trainmover.fork_server.fitness import unfit
from trainmover.fork_server.pages import HUGE_BYTES, MADV_COLLAPSE, whole_pages
from trainmover.lifeline import adopt_orphans

FOLDER = Path(__file__).parent
Started = tuple[ForkServer, "subprocess.Popen[bytes]"]
Start = Callable[..., Started]
_born: list[int] = []


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a fork server with some modules; it is ended with the test."""
    adopt_orphans()
    left: list[subprocess.Popen[bytes]] = []

    def start(*modules: str) -> Started:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "trainmover.fork_server", *modules]
        command += ["--parent", str(os.getpid()), "--socket", str(theirs.fileno())]
        words = environment() | {"OMP_NUM_THREADS": "1"}  # else numpy starts threads
        words["PYTHONPATH"] += f":{FOLDER}"
        with theirs:
            left.append(
                subprocess.Popen(command, pass_fds=(theirs.fileno(),), env=words, cwd=tmp_path)
            )
        return ForkServer(ours), left[-1]

    yield start
    for process in left:
        process.kill()
        process.wait()
    for pid in _born:
        with contextlib.suppress(ChildProcessError):  # The test has collected it.
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    _born.clear()


def bear(fork_server: ForkServer, **birth: object) -> tuple[list[int], int]:
    """The pids, and our end of a pipe that is its standard output and error."""
    read, write = os.pipe()
    with open(os.devnull, "rb") as stdin:
        words = {"PATH": os.environ["PATH"], "WHO": "me"} | birth.pop("words", {})  # type: ignore[operator]
        asked = Birth(environment=words, title="born in a test", **birth)  # type: ignore[arg-type]
        try:
            pids = fork_server.bear(asked, [stdin.fileno(), write, write, write])
            _born.extend(pids)
            return pids, read
        finally:
            os.close(write)


def said(pipe: int) -> str:
    with os.fdopen(pipe) as text:
        return text.read()


def born(fork_server: ForkServer, *arguments: str, cwd: str = "") -> tuple[Child, int]:
    (pid,), pipe = bear(
        fork_server, module="fork_server_module", arguments=arguments, cwd=cwd, variables=["PIPE"]
    )
    return Child(pid), pipe


def gives_huge_pages() -> bool:
    """Whether this kernel does, for a mapping of our own."""
    with mmap.mmap(-1, 2 * HUGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(b"x" * len(memory))
        try:
            memory.madvise(MADV_COLLAPSE)
        except OSError:
            return False
        return True


def test_what_is_born_is_our_child_and_what_was_asked_for(start: Start, tmp_path: Path) -> None:
    fork_server, _ = start("fork_server_module")
    assert fork_server.said_ready()
    (tmp_path / "here").mkdir()
    child, pipe = born(fork_server, "tell", cwd=str(tmp_path / "here"))
    lines = said(pipe).splitlines()
    assert child.wait() == 0
    assert lines == [
        "arguments ['tell']", f"parent {os.getpid()}", f"session {child.pid}", "WHO=me home=False",
        f"cwd {tmp_path / 'here'}", "by the pipe", "at the end",
    ]  # fmt: skip


def test_it_has_its_own_title_and_the_mark_of_the_fork_server(start: Start) -> None:
    fork_server, process = start("fork_server_module")
    assert fork_server.said_ready()
    child, _ = born(fork_server, "wait")
    seen = psutil.Process(child.pid)
    assert words_of(seen) == {"born", "in", "a", "test"}
    assert seen.environ() == psutil.Process(process.pid).environ()
    child.send_signal(signal.SIGKILL)
    child.wait()


def test_children_draw_other_random_numbers(start: Start) -> None:
    fork_server, _ = start("fork_server_module")
    assert fork_server.said_ready()
    drawn = []
    for _ in range(2):
        child, pipe = born(fork_server, "draw")
        drawn += said(pipe).split()
        child.wait()
    assert len(drawn) == len(set(drawn)) == 4


def test_what_all_need_is_found_out_before_they_are_forked(start: Start) -> None:
    fork_server, process = start("fork_server_module")
    assert fork_server.said_ready()
    child, pipe = born(fork_server, "known")
    assert said(pipe) == f"{process.pid}\n"
    assert child.wait() == 0


def test_its_memory_lies_in_huge_pages(start: Start) -> None:
    fork_server, process = start("fork_server_module", "fork_server_large")
    assert fork_server.said_ready()
    if not gives_huge_pages():
        pytest.skip("this kernel has none to give")
    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    [kilobytes] = [line.split()[1] for line in rollup.splitlines() if "AnonHugePages" in line]
    assert int(kilobytes) >= 30 * 1024


def test_huge_pages_are_asked_for_where_whole_ones_fit() -> None:
    maps = """\
00400000-00600000 r-xp 00000000 08:01 1234 /usr/bin/python3.11
00600000-00a00000 rw-p 00200000 08:01 1234 /usr/bin/python3.11
01234000-01a34000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f00001ff000 rw-p 00000000 00:00 0
7f0000200000-7f0000600000 rw-p 00000000 00:00 0
7f0000600000-7f0000a00000 rw-s 00000000 00:00 0
7f0000a00000-7f0000e00000 r--p 00000000 00:00 0
7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0 [stack]
"""
    heap, nameless = (0x1400000, 3 * HUGE_BYTES), (0x7F0000200000, 2 * HUGE_BYTES)
    assert list(whole_pages(maps.splitlines())) == [heap, nameless]


def test_an_exception_and_a_signal_end_it_as_they_end_any_process(start: Start) -> None:
    fork_server, _ = start("fork_server_module")
    assert fork_server.said_ready()
    child, pipe = born(fork_server, "raise")
    assert "ValueError: planted" in said(pipe)
    assert child.wait() == 1
    child, _ = born(fork_server, "wait")
    assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM


def test_a_folder_that_is_not_there_is_an_error_and_the_fork_server_goes_on(start: Start) -> None:
    fork_server, _ = start("fork_server_module")
    assert fork_server.said_ready()
    with pytest.raises(OSError, match="No such file"):
        born(fork_server, cwd="/does/not/exist")
    with pytest.raises(OSError, match="too large"):
        bear(fork_server, module="fork_server_module", words={"LONG": "x" * 200_000})
    child, pipe = born(fork_server, "tell")
    assert said(pipe)
    child.wait()


def test_who_asks_itself_gets_a_fork_server_that_dies_with_it(start: Start) -> None:
    fork_server, _ = start("fork_server_module", "fork_server_program")
    assert fork_server.said_ready()
    (pid, its_own), pipe = bear(
        fork_server, module="fork_server_program", asks=True, variables=["PIPE"]
    )
    until(lambda: words_of(psutil.Process(its_own)) == {"trainmover.fork_server"}, "its title")
    program = Child(pid)
    with os.fdopen(pipe) as text:
        assert text.readline() == f"parent {os.getpid()}\n"
        assert text.readline() == f"born here {pid}\n"
        grandchild = Child(int(text.readline()))
    program.send_signal(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL
    assert Child(its_own).wait() == -signal.SIGKILL
    grandchild.send_signal(signal.SIGKILL)  # it has not tied its life to the program's
    assert grandchild.wait() == -signal.SIGKILL


def test_a_fork_server_that_is_gone_is_an_error(start: Start) -> None:
    fork_server, process = start("fork_server_module")
    assert fork_server.said_ready()
    process.kill()
    process.wait()
    with pytest.raises(OSError, match=r"ended|Broken pipe|reset"):
        born(fork_server, "tell")


def test_it_ends_when_nobody_can_ask_any_more(start: Start) -> None:
    fork_server, process = start("fork_server_module")
    assert fork_server.said_ready()
    fork_server.close()
    assert process.wait() == 0


def test_a_module_that_starts_a_thread_makes_none(start: Start) -> None:
    fork_server, process = start("fork_server_threads")
    assert not fork_server.said_ready()
    assert process.wait() == 1


def test_a_process_with_an_open_device_is_unfit(tmp_path: Path, monkeypatch) -> None:
    device = tmp_path / "nvidiactl"
    monkeypatch.setattr("trainmover.fork_server.fitness.DEVICES", (str(device),))
    monkeypatch.setattr("trainmover.fork_server.fitness.threads", lambda: 1)
    assert unfit() == ""
    with device.open("w"):
        assert "device" in unfit()


ENDS = """
import torch, weakref
from trainmover.lifeline import end_quickly

class Thing:
    pass

class Kept:
    __module__ = "torch.library"

    def __call__(self, *_):
        print("torch's")

thing = Thing()
weakref.finalize(thing, print, "the script's own")
library = [f for f in weakref.finalize._registry if f.peek()[1].__module__ == "torch.library"]
assert library
for finalizer in library:
    _, _, arguments, _ = finalizer.detach()
    weakref.finalize(thing, Kept(), *arguments)
end_quickly(7)
"""


def test_a_quick_end_runs_the_scripts_finalizers_and_none_of_torchs_operators() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (7, "the script's own\n"), done.stderr
