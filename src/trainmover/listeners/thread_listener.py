# SPDX-License-Identifier: Apache-2.0
"""A listener for threads: who comes proves the token here, before anybody spends a thread on it."""

import contextlib
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainmover.descriptors import Shortage, is_shortage, shares
from trainmover.listeners.place import here
from trainmover.protocol.hello import NONCE_BYTES, End, Listener
from trainmover.protocol.sealed import Session
from trainmover.protocol.unauthenticated import Unauthenticated

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

_TICK_S = 0.5
_FULL_S = 0.1


@dataclass(eq=False)
class _Guest:
    """Who stands here. In TLS: whether the handshake has begun, and whether it is done."""

    link: socket.socket
    descriptor: int
    hello: Listener
    began: bool = False
    shaken: bool = False


class ThreadListener:
    """let_in(link, session) gets every connection that is proved; the link is its to close.

    It is called in the listener's thread and must not block.

    tls  spoken here, if it is given: who is still shaking hands is unauthenticated too
    """

    def __init__(
        self,
        listener: socket.socket,
        token: bytes,
        purpose: str,
        let_in: Callable[[socket.socket, Session], None],
        tls: "Tls | None" = None,
    ) -> None:
        self._listener = listener
        self._token = token
        self._purpose = purpose
        self._let_in = let_in
        self._tls = tls
        self._unauthenticated: Unauthenticated[_Guest] = Unauthenticated(shares().strangers)
        self._shortage = Shortage(f"the {purpose} server")
        self._guests: set[_Guest] = set()
        self._selector = selectors.DefaultSelector()
        self._awake, self._wake = os.pipe()
        self._closed = False

    def open(self, name: str) -> None:
        """Begin, in a thread of that name."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the listener and whoever still stands here. Once closed, it stays so."""
        if self._closed:
            return
        self._closed = True
        os.write(self._wake, b"!")
        self._thread.join()
        os.close(self._wake)

    def _serve(self) -> None:
        closing = False
        while not closing:
            for key, _ in self._selector.select(_TICK_S if self._guests else None):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, _Guest):
                    self._hear(key.data)
                else:
                    closing = True
            for guest in self._unauthenticated.late(time.monotonic()):
                self._send_away(guest)
        for guest in list(self._guests):
            self._send_away(guest)
        self._selector.close()
        self._listener.close()
        os.close(self._awake)

    def _accept(self) -> None:
        """One at a time: those who stand here are heard in between."""
        try:
            link, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if is_shortage(error):  # Later ones may fare better.
                self._shortage.note(error)
                time.sleep(_FULL_S)
            return
        link.setblocking(False)
        nonce = secrets.token_bytes(NONCE_BYTES)
        hello = Listener(self._token, End(self._purpose, here(link)), nonce)
        guest = _Guest(link, link.fileno(), hello)
        self._guests.add(guest)
        self._selector.register(guest.descriptor, selectors.EVENT_READ, guest)
        pushed_out = self._unauthenticated.come(guest, time.monotonic())
        if pushed_out is not None:
            self._send_away(pushed_out)
        with contextlib.suppress(OSError):  # It has gone already, and shows that next.
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                link.send(hello.opening)

    def _hear(self, guest: "_Guest") -> None:
        if guest not in self._guests:  # Sent away since the selector saw it.
            return
        hello = guest.hello
        try:
            if self._tls is not None and not guest.shaken:
                self._shake_hands(guest, self._tls)
                return
            data = guest.link.recv(hello.missing)
            reply = hello.hear(data)
            if reply:
                guest.link.send(reply)  # Fits: nothing else is in its buffer.
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or hello.error is not None:
            self._send_away(guest)
        elif hello.proved:
            self._forget(guest)
            guest.link.setblocking(True)
            self._let_in(guest.link, hello.session)

    def _shake_hands(self, guest: "_Guest", tls: "Tls") -> None:
        """As far as what has come allows; the opening follows. Raises OSError.

        Who has said nothing yet has cost no more than without TLS.
        """
        if not guest.began:
            tls.recognise(guest.link)
            guest.link, guest.began = tls.accept(guest.link), True
            self._unauthenticated.heard(guest)
        guest.shaken = tls.shake_hands(guest.link)
        if guest.shaken:
            guest.link.send(guest.hello.opening)

    def _send_away(self, guest: "_Guest") -> None:
        self._forget(guest)
        guest.link.close()

    def _forget(self, guest: "_Guest") -> None:
        self._unauthenticated.go(guest)
        if guest in self._guests:
            self._guests.remove(guest)
            self._selector.unregister(guest.descriptor)
