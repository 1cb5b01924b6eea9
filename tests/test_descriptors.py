"""The limit of descriptors is raised and divided, and a shortage of them ends nothing."""

import errno
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from trainmover import descriptors
from trainmover.descriptors import Shortage, shares

RAISED = """
import resource
from trainmover.descriptors import limit, raise_limit
raise_limit()
print(limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""
LISTENING = """
import asyncio, os, resource, socket, sys
from trainmover.descriptors import Shortage
from trainmover.listeners.loop_listener import LoopListener
from trainmover.listeners.thread_listener import ThreadListener

async def main():
    shortage = Shortage("this process")
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: shortage.explains(context) or sys.exit(repr(context))
    )
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [one.getsockname()[1] for one in listeners]
    ThreadListener(listeners[1], b"t" * 32, "state", lambda link, session: None).open("state")
    await LoopListener(b"t" * 32, "vault", lambda session: asyncio.Protocol()).open(listeners[0])
    await asyncio.to_thread(int)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        print(*ports, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for descriptor in held:
        os.close(descriptor)
    await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@pytest.mark.parametrize(("soft", "hard"), [(256, 1024), (1024, 1024)])
def test_the_soft_limit_becomes_the_hard_one(soft: int, hard: int) -> None:
    command = ["prlimit", f"--nofile={soft}:{hard}", sys.executable, "-c", RAISED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(hard)] * 3


@pytest.mark.parametrize("files", [256, 1024, 4096, 20_000, 1 << 20])
def test_peers_leave_more_than_half_to_the_job(files: int) -> None:
    its = shares(files)
    controller = 2 * its.strangers + 2 * its.proved
    worker = its.strangers + its.native_strangers + its.clients
    assert max(controller, worker) <= files / 2
    assert 3 * its.at_once < its.strangers, "a member is pushed out before it is heard"
    assert its.streams < its.proved
    assert its.streams <= 256


def test_an_accept_without_descriptors_is_told_once_and_tried_again() -> None:
    """In a process of its own, at both kinds of listener."""
    command = [sys.executable, "-c", LISTENING]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as one, ExitStack() as stack:
        stack.callback(one.kill)
        assert one.stdin is not None
        assert one.stdout is not None
        assert one.stderr is not None
        ports = [int(port) for port in one.stdout.readline().split()]
        links = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for port in ports
        ]
        told = sorted(one.stderr.readline() for _ in links)
        assert told[0].startswith("trainmover: the state server cannot accept a connection")
        assert told[1].startswith("trainmover: this process cannot accept a connection")
        one.stdin.write("\n")
        one.stdin.flush()
        for link in links:
            assert link.recv(1), "nobody was let in afterwards"


def test_another_error_of_a_loop_is_no_shortage() -> None:
    told: list[str] = []
    shortage = Shortage("this process", told.append)
    full = OSError(errno.EMFILE, "Too many open files")
    assert not shortage.explains({"message": "x", "exception": full})
    assert not shortage.explains({"socket": 1, "exception": OSError(errno.EPERM, "no")})
    assert not told
    assert shortage.explains({"socket": 1, "exception": full})
    assert shortage.explains({"socket": 1, "exception": full})
    assert len(told) == 1


def test_no_limit_is_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda which: unlimited)
    assert descriptors.limit() == descriptors.LIMIT_MAX
    descriptors.raise_limit()
