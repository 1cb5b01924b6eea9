# SPDX-License-Identifier: Apache-2.0
"""The worker's end of the control link: a socket to its agent, one thread that takes orders."""

import os
import socket
import threading
from collections.abc import Callable

from trainmover.protocol.framing import FrameReader, frame
from trainmover.protocol.messages import Order, WorkerFact, decode_order, encode


class ControlLink:
    """Says facts from any thread; gives orders, one at a time, to `obey` on its own thread.

    The agent's death ends the process: a worker without an agent is fenced by definition.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self._send = threading.Lock()

    def say(self, fact: WorkerFact) -> None:
        """Send a fact up."""
        data = frame(encode(fact))
        try:
            with self._send:
                self._socket.sendall(data)
        except OSError:
            os._exit(1)

    def listen(self, obey: Callable[[Order], None]) -> None:
        """Start the thread that takes orders."""
        thread = threading.Thread(target=self._run, args=(obey,), name="tm-control", daemon=True)
        thread.start()

    def _run(self, obey: Callable[[Order], None]) -> None:
        reader = FrameReader()
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                os._exit(1)
            for payload in reader.feed(data):
                obey(decode_order(payload))
