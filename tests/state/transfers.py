"""Fetches for tests, and a wire on which anything can happen to a source."""

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from torch import Tensor

from trainmover.listeners import dial
from trainmover.listeners.dial import parse_address
from trainmover.protocol.hello import OPENING_BYTES, PROOF_BYTES, Where
from trainmover.protocol.sealed import HEAD_BYTES
from trainmover.state.transfer import FetchReport, Offered, StateServer, fetch

TOKEN = b"t" * 16
KEY = "step 7"
MIB = 1024 * 1024
OPENING = OPENING_BYTES + PROOF_BYTES + HEAD_BYTES
"""Bytes of the hello and of the head of the first frame, as a source sends them."""
HELD_BYTES = MIB
"""After so many a source waits for others: it has been asked for chunks by then."""


def offer(server: StateServer, tensors: list[Tensor], header: bytes = b"", alike: str = "") -> str:
    """Offer them under `KEY`; the server's address."""
    server.offer(KEY, lambda: Offered(header, tensors, alike))
    return server.address


def fetch_into(
    tensors: list[Tensor], *sources: str, token: bytes = TOKEN, **options: Any
) -> FetchReport:
    usual = {
        "into": lambda header: tensors,
        "cancelled": threading.Event(),
        "timeout_s": 30.0,
    }
    return fetch(sources, token=token, key=KEY, **usual | options)


Change = Callable[[bytearray, int], bool]
"""Given bytes on their way down, to be changed in place, and how many went before. Whether the
connection goes on."""


def flip(place: int) -> Change:
    """One bit."""

    def change(data: bytearray, before: int) -> bool:
        if before <= place < before + len(data):
            data[place - before] ^= 1
        return True

    return change


def cut(place: int) -> Change:
    """The source dies after so many bytes."""

    def change(data: bytearray, before: int) -> bool:
        del data[max(0, place - before) :]
        return before + len(data) < place

    return change


class Relay:
    """Sits on the wire to the source at `address`, unseen, for every connection to it.

    change, up: of what comes down, and goes up
    silent_after: bytes down, after which nothing comes any more though nobody hangs up
    waits_for: of other sources, before more than the first bytes come down: who is fast leaves
        something for the others, however slowly their threads are let run

    giving: it was asked for chunks, and sends them
    silent: nothing comes any more
    """

    def __init__(
        self,
        address: str,
        change: Change | None = None,
        *,
        up: Change | None = None,
        silent_after: int | None = None,
        waits_for: Sequence[threading.Event] = (),
    ) -> None:
        self._target = parse_address(address)
        self._change, self._change_up = change, up
        self._silent_after = silent_after
        self.waits_for = list(waits_for)
        self.giving, self.silent = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._links: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._run)]
        self._gone = threading.Event()
        self._there = dial.there
        self._unseen = mock.patch.object(dial, "there", self._dialled)

    def __enter__(self) -> "Relay":
        self._there = dial.there
        self._unseen.start()
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._unseen.stop()
        self._gone.set()
        for link in (self._listener, *self._links):
            _hang_up(link)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _dialled(self, link: socket.socket) -> Where:
        """No second address is seen in the middle of a wire."""
        where = self._there(link)
        if (where.host, where.port) == parse_address(self.address):
            return Where(*self._target, where.loopback)
        return where

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                source = socket.create_connection(self._target)
                self._links += (client, source)
                for work in (self._pass_up, self._pass_down):
                    self._threads.append(threading.Thread(target=work, args=(client, source)))
                    self._threads[-1].start()

    def _pass_up(self, client: socket.socket, source: socket.socket) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := bytearray(client.recv(65536)):
                if self._change_up is not None:
                    self._change_up(data, passed)
                passed += len(data)
                source.sendall(data)
        _hang_up(source)

    def _pass_down(self, client: socket.socket, source: socket.socket) -> None:
        passed, on = 0, True
        with contextlib.suppress(OSError), client, source:
            while on and (data := bytearray(source.recv(65536))):
                if self._silent_after is not None and passed + len(data) > self._silent_after:
                    self.silent.set()
                    self._gone.wait(30)
                on = self._change is None or self._change(data, passed)
                passed += len(data)
                client.sendall(data)
                if passed >= HELD_BYTES:
                    self._let_others_come()
            for link in (client, source):
                _hang_up(link)

    def _let_others_come(self) -> None:
        self.giving.set()
        for event in self.waits_for:
            event.wait(60)


def _hang_up(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
