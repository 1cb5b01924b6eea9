# SPDX-License-Identifier: Apache-2.0
"""A TLS connection for threads, used as a plain one is."""

import socket
import ssl
from collections.abc import Iterable
from typing import Any

from trainmover.tls.refusals import GONE


class SecureSocket(ssl.SSLSocket):
    """Has what `ssl.SSLSocket` leaves out though it means the same in TLS, and raises what a plain
    socket raises when the peer is gone, or nothing has come yet.

    Bytes are copied once more than without TLS: nothing goes from memory to memory encrypted.
    """

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error
        except GONE as error:
            raise ConnectionResetError("the connection was closed") from error

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except ssl.SSLWantReadError as error:
            raise BlockingIOError from error

    def send(self, data: Any, flags: int = 0) -> int:
        try:
            return super().send(data, flags)
        except GONE as error:
            raise ConnectionResetError("the connection was closed") from error

    def recvmsg_into(  # type: ignore[override]
        self, buffers: Iterable[memoryview], *_: int
    ) -> tuple[int, list[Any], int, Any]:
        """Fills the buffers in turn; less than all of them only at the stream's end."""
        count = 0
        for buffer in buffers:
            filled = 0
            while filled < len(buffer):
                more = self.recv_into(buffer[filled:])
                if not more:
                    return count, [], 0, None
                filled += more
                count += more
        return count, [], 0, None

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:  # type: ignore[override]
        """All of them."""
        count = 0
        for buffer in buffers:
            self.sendall(buffer)
            count += len(buffer)
        return count

    def shutdown(self, how: int) -> None:
        """Of the connection below, from any thread. `SSLSocket` would go on in plain text."""
        socket.socket.shutdown(self, how)
