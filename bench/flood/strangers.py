# SPDX-License-Identifier: Apache-2.0
"""What somebody can do to a native endpoint's doors who does not know the token."""

import array
import os
import secrets
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

HELD = 400  # connections that a stranger keeps open; the oldest goes for a new one
NOBODY = 65534
LINGER_S = 2
GREETING = struct.Struct("<IHHQQ32s")  # magic, version, sealed, from, to, nonce; see hello.hpp
MAGIC, VERSION = 0x48434D54, 5


def knock(address: str) -> socket.socket:
    """A connection that says nothing, as fast as they can be made."""
    host, _, port = address.rpartition(":")
    link = socket.socket()
    link.setblocking(False)
    with suppress(BlockingIOError):
        link.connect((host, int(port)))
    return link


def greet(address: str) -> socket.socket:
    """A greeting as a member's, which the listener answers with a proof."""
    host, _, port = address.rpartition(":")
    link = socket.socket()  # not create_connection: who is nobody may read no codec for names
    link.settimeout(5)
    link.connect((host, int(port)))
    told = secrets.randbits(63), secrets.randbits(63), secrets.token_bytes(32)
    link.sendall(GREETING.pack(MAGIC, VERSION, 0, *told))
    return link


def pass_lingering(path: str) -> socket.socket:
    """By the local door: the last descriptor of a socket whose closing takes seconds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        full = socket.create_connection(listener.getsockname())
        _unread.append(listener.accept()[0])
    full.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            full.send(bytes(1 << 16))
    full.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    passed = array.array("i", [full.fileno()])
    link.sendmsg([b"?" * GREETING.size], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
    # Aside: where the listener was quicker, it is this end's closing that takes seconds.
    threading.Thread(target=full.close, daemon=True).start()
    return link


_unread: deque[socket.socket] = deque(maxlen=HELD)


class Stranger:
    """In a process: one flood at a time."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread()
        self.made = 0

    def become_nobody(self) -> None:
        """As another user, where that is possible."""
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)

    def begin(self, kind: str, place: str) -> None:
        """place: an address or a path."""
        self._over.clear()
        self.made = 0
        self._thread = threading.Thread(target=self._flood, args=(FLOODS[kind], place))
        self._thread.start()

    def end(self) -> int:
        """How many connections there were. Raises ValueError if it was no flood."""
        self._over.set()
        self._thread.join()
        if self.made == 0:
            raise ValueError("a stranger came to no door: there was no flood")
        return self.made

    def _flood(self, attack: Callable[[str], socket.socket], place: str) -> None:
        held: deque[socket.socket] = deque()
        while not self._over.is_set():
            with suppress(OSError):
                held.append(attack(place))
                self.made += 1
            if len(held) > HELD:
                held.popleft().close()
        for link in held:
            link.close()


FLOODS: dict[str, Callable[[str], socket.socket]] = {
    "knocks": knock,
    "greetings": greet,
    "descriptors": pass_lingering,
}
