"""The worker processes of one machine: started, watched by pidfd, ended, and talked to."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from trainmover.agent.output import StreamReader
from trainmover.errors import ProtocolError, UserError
from trainmover.protocol.framing import FrameReader
from trainmover.protocol.messages import decode_worker_fact

RECEIVE_BYTES = 256 * 1024


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
    """One process. `exited` comes after its last fact and its last line, exactly once."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, to: Listener):
        assert process.stdout is not None
        assert process.stderr is not None
        self.pid = process.pid
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._to = to
        self._muted = False
        self._control = ControlSocket(control, self._said, self._broke_the_rules)
        self._streams = [
            StreamReader(os.dup(pipe.fileno()), partial(to.lines, name))
            for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr))
        ]
        process.stdout.close()
        process.stderr.close()
        asyncio.get_running_loop().add_reader(self._pidfd, self._ended)

    def send_framed(self, data: bytes) -> None:
        self._control.send_framed(data)

    def signal(self, number: int) -> None:
        """Send a signal; one that has ended in the meantime is left alone."""
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
        self._to.lines("stderr", f"trainmover: worker killed: {error.happened}\n".encode())
        self.signal(signal.SIGKILL)

    def _ended(self) -> None:
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
) -> Worker:
    """Fork and exec one worker in a session of its own.

    environment  given the number of the worker's control descriptor
    Raises UserError if the program or the working directory cannot be used.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with theirs:
            process = subprocess.Popen(
                command,
                cwd=cwd or None,
                env=dict(environment(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
    except OSError as error:
        ours.close()
        raise UserError(
            f"A worker could not be started: {error}.",
            means="This machine leaves the job.",
            do="The script's working directory must exist on every machine.",
        ) from error
    return Worker(process, ours, to)
