# SPDX-License-Identifier: Apache-2.0
"""A proved connection on which sealed frames are said and heard: how a thread speaks over it.

What goes with every step goes over the extension's, where it can: its frames are marked and sent
by a thread of its own that needs no Python, so a send costs a step nothing but to hand it over. The
other one does the same as it is called, also in TLS; both say and hear the same bytes.
"""

import contextlib
import select
import socket
from importlib import import_module
from typing import Protocol

from trainmover.communicators import native_is_built
from trainmover.protocol.framing import FRAME_BYTES_MAX, too_long
from trainmover.protocol.sealed import SealedReader, Session, changed

_RECV_BYTES = 1024 * 1024
_FEW_BYTES = 4096
"""Memory for more is not to be had at once, and mostly an acknowledgement is all that comes."""
_POLL_MS = 10  # How long a cancelled wait may go unnoticed.


class SealedLink(Protocol):
    """One thread at a time may hear; `close` may be called meanwhile, by any."""

    def say(self, payload: bytes) -> None:
        """Send a frame. Raises OSError, where it goes on its way later at some later call; and
        ProtocolError if it is too long."""

    def hear(self) -> list[bytes]:
        """Frames that have come; [] if none comes for a moment. Raises OSError or EOFError once
        the connection is over, ProtocolError for what was not said."""

    def close(self) -> None:
        """End it. Who hears is woken."""


class PlainLink:
    """Sends and marks as it is called."""

    def __init__(self, link: socket.socket, session: Session) -> None:
        self._socket, self._session = link, session
        self._frames = SealedReader(session)
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)
        # In TLS: bytes that were read, and not asked for.
        self._pending = getattr(link, "pending", int)
        self._much_comes = False

    def say(self, payload: bytes) -> None:
        self._socket.sendall(self._session.seal(payload))

    def hear(self) -> list[bytes]:
        if not self._pending() and not self._poll.poll(_POLL_MS):
            return []
        data = self._socket.recv(_RECV_BYTES if self._much_comes else _FEW_BYTES)
        if not data:
            raise EOFError
        self._much_comes = len(data) >= _FEW_BYTES
        return self._frames.feed(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # Already gone: what we wanted.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class HandedOver:
    """The extension's."""

    def __init__(self, link: socket.socket, session: Session) -> None:
        says, hears = session.says, session.hears
        self._socket = link  # It has a copy of its own.
        self._link = import_module("trainmover._native").SealedLink(
            link.fileno(), says.key, says.number, hears.key, hears.number, FRAME_BYTES_MAX
        )
        self._say, self._hear = self._link.say, self._link.hear

    def say(self, payload: bytes) -> None:
        if len(payload) > FRAME_BYTES_MAX:
            raise too_long(len(payload), FRAME_BYTES_MAX)
        self._say(payload)

    def hear(self) -> list[bytes]:
        try:
            frames: list[bytes] = self._hear()
        except ValueError as error:
            (length,) = error.args
            raise too_long(length, FRAME_BYTES_MAX) if length else changed() from None
        return frames

    def close(self) -> None:
        self._link.close()
        self._socket.close()


def over(link: socket.socket, session: Session, *, by_thread: bool) -> SealedLink:
    """It has the socket from now on. by_thread: what is said is to be sent by a thread, where that
    is possible: not in TLS, where Python's library encrypts, nor without the extension."""
    if by_thread and type(link) is socket.socket and native_is_built():
        return HandedOver(link, session)
    return PlainLink(link, session)
