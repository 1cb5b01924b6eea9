# SPDX-License-Identifier: Apache-2.0
"""The worker processes of one machine: started, watched by pidfd, ended, and talked to."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from trainmover.agent.workers.births import Births
from trainmover.agent.workers.output import StreamReader
from trainmover.errors import ProtocolError, UserError
from trainmover.escaping import one_line
from trainmover.fork_server import Birth, Child
from trainmover.protocol.framing import FrameReader
from trainmover.protocol.messages import decode_worker_fact

RECEIVE_BYTES = 256 * 1024
NEVER_BEGAN = 127
WORKER_MODULE = "trainmover.worker.process"


class ControlSocket:
    """Our end of a worker's socketpair. Sends never block and never wait for the loop if they can.

    heard(payload) for every frame that is a worker's fact; broken(error) once if one is not.
    """

    def __init__(
        self,
        sock: socket.socket,
        heard: Callable[[bytes], None],
        broken: Callable[[ProtocolError], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._heard = heard
        self._broken = broken
        self._reader = FrameReader()
        self._unsent = bytearray()
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._loop.add_reader(sock, self._read_some)

    def send_framed(self, data: bytes) -> None:
        """A worker that is gone swallows it; its exit is reported by other means."""
        if not self._open:
            return
        if self._unsent:
            self._unsent += data
            return
        sent = self._send_now(data)
        if sent < len(data) and self._open:
            self._unsent += data[sent:]
            self._loop.add_writer(self._sock, self._send_rest)

    def drain(self) -> None:
        """Hear all that has arrived: a worker's last words count although it is dead."""
        while self._open and self._read_some():
            pass

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()

    def _read_some(self) -> bool:
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        try:
            for payload in self._reader.feed(data):
                decode_worker_fact(payload)
                self._heard(payload)
        except ProtocolError as error:
            self.close()
            self._broken(error)
            return False
        return True

    def _send_now(self, data: bytes | bytearray) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            return len(data)

    def _send_rest(self) -> None:
        del self._unsent[: self._send_now(self._unsent)]
        if not self._unsent and self._open:
            self._loop.remove_writer(self._sock)


@dataclass(frozen=True)
class Listener:
    """Who hears of a worker: its facts, its output lines by stream, its exit code."""

    fact: Callable[[bytes], None]
    lines: Callable[[str, bytes], None]
    exited: Callable[[int], None]


class Worker:
    """One process. `exited` comes after its last fact and its last line, exactly once.

    It may be about to be born: until `begin` its pid is 0, and signals to it wait.
    stdout, stderr  our ends of its pipes; owned by us
    """

    def __init__(self, stdout: int, stderr: int, control: socket.socket, to: Listener) -> None:
        self.pid = 0
        self._process: subprocess.Popen[bytes] | Child | None = None
        self._pidfd = -1
        self._signals: list[int] = []
        self._to = to
        self._muted = False
        self._control = ControlSocket(control, self._said, self._broke_the_rules)
        self._streams = [
            StreamReader(pipe, partial(to.lines, name))
            for name, pipe in (("stdout", stdout), ("stderr", stderr))
        ]

    def begin(self, process: "subprocess.Popen[bytes] | Child") -> None:
        self.pid = process.pid
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._ended)
        for number in self._signals:
            self.signal(number)

    def close(self) -> None:
        """Of one that never began."""
        self._control.close()
        for stream in self._streams:
            stream.finish()

    def send_framed(self, data: bytes) -> None:
        self._control.send_framed(data)

    def signal(self, number: int) -> None:
        """Send a signal; one that has ended in the meantime is left alone."""
        if self._process is None:
            self._signals.append(number)
            return
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return

    def mute(self) -> None:
        """Nothing it still says counts; its lines and its exit are still heard."""
        self._muted = True

    def drain_output(self) -> None:
        for stream in self._streams:
            stream.drain()

    def _said(self, payload: bytes) -> None:
        if not self._muted:
            self._to.fact(payload)

    def _broke_the_rules(self, error: ProtocolError) -> None:
        why = one_line(error.happened)
        self._to.lines("stderr", f"trainmover: worker killed: {why}\n".encode())
        self.signal(signal.SIGKILL)

    def _ended(self) -> None:
        assert self._process is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        # Before the pid is reaped, so that the group number can be nobody else's.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        os.close(self._pidfd)
        self._control.drain()
        self._control.close()
        for stream in self._streams:
            stream.finish()
        self._to.exited(code)


def start_worker(
    command: Sequence[str],
    cwd: str,
    environment: Callable[[int], Mapping[str, str]],
    to: Listener,
    births: Births | None = None,
) -> Worker:
    """One worker in a session of its own: forked from the fork server if it can be, else executed.

    environment  given the number of the worker's control descriptor
    Raises UserError if the program or the working directory cannot be used.
    """
    theirs = ExitStack()
    stdout, its_stdout = _pipe(theirs)
    stderr, its_stderr = _pipe(theirs)
    control, its_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    theirs.callback(its_control.close)
    worker = Worker(stdout, stderr, control, to)
    descriptors = (its_stdout, its_stderr, its_control.fileno())

    def begin(child: Child | None) -> None:
        with theirs:
            try:
                worker.begin(child or _execute(command, cwd, environment, descriptors))
            except UserError:
                worker.close()
                raise

    def born(child: Child | None) -> None:
        try:
            begin(child)
        except UserError:
            to.exited(NEVER_BEGAN)
            raise

    if births is None:
        begin(None)
    else:
        births.ask(_birth(cwd, environment(-1)), descriptors, born)
    return worker


def _pipe(theirs: ExitStack) -> tuple[int, int]:
    """The end to read is ours, the other one a worker's."""
    read, write = os.pipe()
    theirs.callback(os.close, write)
    return read, write


def _birth(cwd: str, environment: Mapping[str, str]) -> Birth:
    return Birth(
        module=WORKER_MODULE,
        title=f"trainmover.worker {environment['TRAINMOVER_MACHINE']} {environment['LOCAL_RANK']}",
        cwd=cwd,
        environment=dict(environment),
        variables=["TRAINMOVER_CONTROL_FD"],
    )


def _execute(
    command: Sequence[str],
    cwd: str,
    environment: Callable[[int], Mapping[str, str]],
    descriptors: tuple[int, int, int],
) -> "subprocess.Popen[bytes]":
    stdout, stderr, control = descriptors
    try:
        return subprocess.Popen(
            command,
            cwd=cwd or None,
            env=dict(environment(control)),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(control,),
            start_new_session=True,
        )
    except OSError as error:
        raise UserError(
            f"A worker could not be started: {error}.",
            means="This machine leaves the job.",
            do="The script's working directory must exist on every machine.",
        ) from error
