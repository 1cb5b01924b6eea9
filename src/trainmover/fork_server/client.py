# SPDX-License-Identifier: Apache-2.0
"""Our end of a fork server's socket."""

import socket
from collections.abc import Sequence

import msgspec

from trainmover.fork_server.wire import PACKET_BYTES_MAX, READY, Birth, Born

ANSWER_S = 10.0
"""Forking takes milliseconds; who takes this long is stopped or swapped out."""


class ForkServer:
    """Asks for processes. Only its parent, a subreaper, can: what is born becomes its child.

    A fork server that cannot be used any more raises OSError; the caller starts them itself then.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    @classmethod
    def inherited(cls, fd: int) -> "ForkServer":
        """The one that came with us when a fork server made us."""
        sock = socket.socket(fileno=fd)
        sock.set_inheritable(False)
        return cls(sock)

    def fileno(self) -> int:
        return self._sock.fileno()

    def said_ready(self) -> bool:
        """Blocks until it has imported; False if nothing can be forked from it."""
        self._sock.settimeout(None)
        try:
            return self._sock.recv(len(READY)) == READY
        except OSError:
            return False

    def bear(self, birth: Birth, descriptors: Sequence[int]) -> list[int]:
        """Blocks a moment. The new process, by now our child, and its own fork server if any.

        Descriptors stay the caller's. Raises OSError.
        """
        try:
            self.ask(birth, descriptors)
            return self.answer()
        except ConnectionError:
            self.close()  # A late answer must not be taken for the next one.
            raise

    def ask(self, birth: Birth, descriptors: Sequence[int]) -> None:
        """`bear` without its answer, for those that must not block. Raises OSError."""
        packet = msgspec.msgpack.encode(birth)
        if len(packet) > PACKET_BYTES_MAX:
            raise OSError("the environment is too large for a fork server")
        self._sock.settimeout(ANSWER_S)
        socket.send_fds(self._sock, [packet], descriptors)

    def answer(self) -> list[int]:
        """Of the oldest question that has none; blocks until it is there.

        Raises ConnectionError if there will be none any more, OSError if this birth failed.
        """
        try:
            answer = self._sock.recv(PACKET_BYTES_MAX)
        except TimeoutError as error:
            raise ConnectionAbortedError("the fork server does not answer") from error
        if not answer:
            raise ConnectionAbortedError("the fork server has ended")
        born = msgspec.msgpack.decode(answer, type=Born)
        if born.error:
            raise OSError(born.error)
        return born.pids

    def close(self) -> None:
        """Nobody can ask any more: it ends."""
        self._sock.close()
