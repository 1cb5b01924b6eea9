"""A worker whose fork server fails it is executed instead, and nobody waits for a fork server."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable

import msgspec
import pytest

from trainmover.agent.workers.births import Births
from trainmover.agent.workers.processes import Listener, Worker, start_worker
from trainmover.errors import UserError
from trainmover.fork_server import ForkServer
from trainmover.fork_server.wire import PACKET_BYTES_MAX, Born

NAMED = {"TRAINMOVER_MACHINE": "m1", "LOCAL_RANK": "0"}
HELLO = [sys.executable, "-S", "-c", "print('hello')"]
WAITS = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
Play = Callable[[socket.socket], None]


async def started(
    play: Play, command: list[str], cwd: str = "", then: Callable[[Worker], None] = lambda _: None
) -> tuple[int, bytes]:
    """Exit code and output of a worker that a fork server, played by the test, was asked for."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    lines: list[bytes] = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        births = Births(ForkServer(ours))
        to = Listener(lambda _: None, lambda _, data: lines.append(data), ended.set_result)
        worker = start_worker(command, cwd, lambda _: os.environ | NAMED, to, births)
        assert worker.pid == 0
        then(worker)
        play(theirs)
        async with asyncio.timeout(30):
            code = await ended
        return code, b"".join(lines)


def refuses(fork_server: socket.socket) -> None:
    assert b"trainmover.worker.process" in fork_server.recv(PACKET_BYTES_MAX)
    fork_server.send(msgspec.msgpack.encode(Born(error="no memory")))


def ends(fork_server: socket.socket) -> None:
    fork_server.close()


@pytest.mark.parametrize("play", [refuses, ends])
def test_a_worker_is_executed_where_the_fork_server_fails(play: Play) -> None:
    assert asyncio.run(started(play, HELLO)) == (0, b"hello\n")


def test_a_signal_to_a_worker_that_is_about_to_be_born_is_delivered() -> None:
    def kill(worker: Worker) -> None:
        worker.signal(signal.SIGKILL)

    assert asyncio.run(started(refuses, WAITS, then=kill))[0] == -signal.SIGKILL


def test_what_cannot_be_executed_either_is_an_error_and_the_worker_has_ended() -> None:
    async def failing() -> tuple[int, list[BaseException]]:
        errors: list[BaseException] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, c: errors.append(c["exception"]))
        code, _ = await started(refuses, HELLO, cwd="/does/not/exist")
        await asyncio.sleep(0)
        return code, errors

    code, errors = asyncio.run(failing())
    assert code == 127
    assert [type(error) for error in errors] == [UserError]
