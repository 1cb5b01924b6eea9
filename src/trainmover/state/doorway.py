"""A listener for threads: who comes proves the token here, before anybody spends a thread on it."""

import contextlib
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable

from trainmover.protocol.crowd import Crowd
from trainmover.protocol.hello import CHALLENGE_BYTES, REFUSAL, Greeting

_TICK_S = 0.5
_FULL_S = 0.1


class Doorway:
    """let_in(link) gets every connection that has proved the token; the link is its to close.

    It is called in the doorway's thread and must not block.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: bytes,
        purpose: str,
        let_in: Callable[[socket.socket], None],
    ) -> None:
        self._listener = listener
        self._token = token
        self._purpose = purpose
        self._let_in = let_in
        self._crowd: Crowd[socket.socket] = Crowd()
        self._greetings: dict[socket.socket, Greeting] = {}
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
            for key, _ in self._selector.select(_TICK_S if self._greetings else None):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj)
                else:
                    closing = True
            for link in self._crowd.late(time.monotonic()):
                self._send_away(link)
        for link in list(self._greetings):
            self._send_away(link)
        self._selector.close()
        self._listener.close()
        os.close(self._awake)

    def _accept(self) -> None:
        """One at a time: those who stand here are heard in between."""
        try:
            link, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # Out of file descriptors: later ones may fare better.
            time.sleep(_FULL_S)
            return
        link.setblocking(False)
        challenge = secrets.token_bytes(CHALLENGE_BYTES)
        self._greetings[link] = Greeting(self._token, self._purpose, challenge)
        self._selector.register(link, selectors.EVENT_READ)
        crowded_out = self._crowd.come(link, time.monotonic())
        if crowded_out is not None:
            self._send_away(crowded_out)
        with contextlib.suppress(OSError):  # It has gone already, and shows that next.
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.send(challenge)

    def _hear(self, link: socket.socket) -> None:
        greeting = self._greetings.get(link)
        if greeting is None:  # Sent away since the selector saw it.
            return
        try:
            data = link.recv(greeting.missing)
            reply = greeting.hear(data)
            if reply:
                link.send(reply)  # Fits: nothing else is in its buffer.
        except BlockingIOError:
            return
        except OSError:
            data = reply = b""
        if not data or reply == REFUSAL:
            self._send_away(link)
        elif greeting.proved:
            self._forget(link)
            link.setblocking(True)
            self._let_in(link)

    def _send_away(self, link: socket.socket) -> None:
        self._forget(link)
        link.close()

    def _forget(self, link: socket.socket) -> None:
        self._crowd.go(link)
        if self._greetings.pop(link, None) is not None:
            self._selector.unregister(link)
