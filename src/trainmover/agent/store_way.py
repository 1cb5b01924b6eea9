# SPDX-License-Identifier: Apache-2.0
"""How this machine's workers come to torch's store.

They dial a port on their own loopback interface, as torch does it; the agent passes it on to the
listener of the stores, where it proves the token (`server/store_listener.py`). A loopback port is
open to every user of a host, so that only its own user's processes are let in.
"""

import asyncio
import os
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from trainmover.agent.dial import dial, streams
from trainmover.descriptors import shares
from trainmover.errors import PeerLost, ProtocolError
from trainmover.protocol.hello import STORE
from trainmover.protocol.keys import ToTorch, encode
from trainmover.protocol.sealed import HEAD_BYTES
from trainmover.protocol.unauthenticated import QUEUE
from trainmover.splice import Ends, splice

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

_LOOPBACK = "127.0.0.1"
_OWNER_FIELD = 7
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2  # linux/sock_diag.h, linux/netlink.h
_ASKED_S = 1.0
_MAPPED = "".join(f"{word:08X}" for word in struct.unpack("=3I", bytes(10) + b"\xff\xff"))
"""How the kernel shows that an IPv6 socket has an IPv4 address."""


class StoreWay:
    """To torch's store behind the listener at `listener`. address: on the loopback interface, for
    workers."""

    def __init__(self, listener: str, token: bytes, tls: "Tls | None" = None) -> None:
        self.listener = listener
        self._token = token
        self._tls = tls
        self._listener = socket.create_server((_LOOPBACK, 0), backlog=QUEUE)
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._led: set[asyncio.Task[None]] = set()
        self._serving = asyncio.ensure_future(self._serve())
        self._serving.add_done_callback(lambda _: self._listener.close())

    def close(self) -> None:
        """Nobody takes it any more; who is on it stays so as long as that store lives."""
        self._serving.cancel()

    async def _serve(self) -> None:
        at_once = shares().at_once
        server = await asyncio.start_server(self._begin, sock=self._listener, backlog=at_once)
        self._listener.listen(QUEUE)
        await server.serve_forever()

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """In a task of our own: of one that is cancelled, as all are when the agent ends, asyncio
        would print a traceback."""
        leading = asyncio.ensure_future(self._lead(reader, writer))
        self._led.add(leading)
        leading.add_done_callback(self._led.discard)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One worker's connection. Where the store is not to be reached it ends: torch tries again
        for as long as it has been told to."""
        try:
            ends = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
            if owner(*ends) == os.getuid():
                await splice((reader, writer), await self._torch())
        except (PeerLost, ProtocolError, OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.transport.abort()

    async def _torch(self) -> Ends:
        """A connection to torch's store, past the listener. Raises PeerLost, ProtocolError,
        OSError, or IncompleteReadError."""
        transport, session = await dial(self.listener, self._token, self._tls, purpose=STORE)
        reader, writer = streams(transport)
        try:
            writer.write(session.seal(encode(ToTorch())))
            rest = session.length(await reader.readexactly(HEAD_BYTES))
            session.opened(await reader.readexactly(rest))
        except BaseException:
            transport.abort()
            raise
        return reader, writer


class StoreWays:
    """For stores that may move from one process to another."""

    def __init__(self, token: bytes, tls: "Tls | None" = None) -> None:
        self._token = token
        self._tls = tls
        self._way: StoreWay | None = None

    def to(self, listener: str) -> str:
        """Where this machine's workers find torch's store, behind that listener, from now on."""
        if self._way is None or self._way.listener != listener:
            if self._way is not None:
                self._way.close()
            self._way = StoreWay(listener, self._token, self._tls)
        return self._way.address


def owner(address: tuple[str, int], peer: tuple[str, int]) -> int | None:
    """The user whose socket on this host has this IPv4 address, and is connected to that of `peer`;
    None if none has.

    The kernel is asked for this one connection. Only if it does not answer that (netlink may be
    forbidden, or the module be missing), its tables are read, which takes milliseconds.
    """
    try:
        found = _asked(address, peer)
    except OSError:
        found = None
    return _listed(address) if found is None else found


def _asked(address: tuple[str, int], peer: tuple[str, int]) -> int | None:
    """By `struct inet_diag_req_v2`; None if it knows of none. Raises OSError."""
    (host, port), (there, other) = address, peer
    ends = struct.pack("!HH", port, other) + b"".join(
        socket.inet_aton(one) + bytes(12) for one in (host, there)
    )
    head = struct.pack("=4BI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    asked = head + ends + struct.pack("=Iq", 0, -1)  # On any interface, with any cookie.
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(_ASKED_S)
        kernel.send(struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, _REQUEST, 0, 0) + asked)
        answer = kernel.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    if kind == _ERROR:
        return None
    user: int = struct.unpack_from("=I", answer, 80)[0]  # Of `struct inet_diag_msg`.
    return user


def _listed(address: tuple[str, int]) -> int | None:
    """In the kernel's tables of all connections."""
    host, port = address
    (number,) = struct.unpack("=I", socket.inet_aton(host))
    ends = f"{number:08X}:{port:04X}"
    for table, known in (("tcp", ends), ("tcp6", _MAPPED + ends)):  # As torch's sockets are.
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1] == known:
                return int(fields[_OWNER_FIELD])
    return None
