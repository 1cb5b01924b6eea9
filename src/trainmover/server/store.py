# SPDX-License-Identifier: Apache-2.0
"""`python -m trainmover.server.store`: the job's key-value stores in a process of their own.

Groups meet in one, scripts keep what they like in the other, which is torch's. They are no rank's,
so they outlive every rank; and `trainmover run` itself need not import torch. Machines come to both
by a listener (`server.store_listener`), whose port is printed as soon as it listens.
"""

import argparse
import asyncio
import os
import secrets
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainmover.descriptors import Shortage, raise_limit
from trainmover.lifeline import die_with
from trainmover.listeners.signed import KEY_BYTES, end_others, queued, sign
from trainmover.names import ask_nobody
from trainmover.protocol.unauthenticated import QUEUE
from trainmover.server.store_listener import StoreListener
from trainmover.splice import Ends
from trainmover.tls.files import all_or_none
from trainmover.token_file import read_token
from trainmover.tracebacks import escape_tracebacks

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

HOST = "127.0.0.1"
QUEUED_S = 0.01


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--listen", metavar="HOST", required=True, help="where machines come")
    parser.add_argument("--token-file", type=Path, metavar="FILE", required=True)
    for flag in ("--tls-cert", "--tls-key", "--tls-ca"):
        parser.add_argument(flag, default="", metavar="FILE")
    options = parser.parse_args()
    escape_tracebacks()
    die_with(options.parent)
    raise_limit()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # It ends with the run, not before.
    outer = socket.create_server((options.listen, 0), backlog=QUEUE)
    print(outer.getsockname()[1], flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    files = all_or_none(options.tls_cert, options.tls_key, options.tls_ca)
    tls = None if files is None else files.read()
    asyncio.run(_serve(read_token(options.token_file), outer, tls))


async def _serve(token: bytes, outer: socket.socket, tls: "Tls | None") -> None:
    """Who wants torch's store before torch is imported waits for it; others do not."""
    loop = asyncio.get_running_loop()
    shortage = Shortage("the stores' process")
    loop.set_exception_handler(
        lambda loop, context: shortage.explains(context) or loop.default_exception_handler(context)
    )
    torch = TorchStore()
    await asyncio.gather(StoreListener(token, torch.dial, tls).serve(outer), torch.serve())


class TorchStore:
    """torch's store, which takes what anybody says. So the kernel lets only this process come to
    it: all that goes there is signed with a key that nobody else has.

    signed  whether the kernel can do that; else whoever is on this host comes in
    """

    def __init__(self) -> None:
        self.signed = False
        self._listener = socket.socket()
        self._listener.bind((HOST, 0))  # torch listens: nobody can come before.
        self.address: tuple[str, int] = self._listener.getsockname()
        self._key = secrets.token_bytes(KEY_BYTES)
        self._serves = asyncio.Event()
        self._store: object = None

    async def serve(self) -> None:
        """Begin, which takes a second. It lasts as long as this object."""
        self._store = await asyncio.to_thread(self._begin)
        self._serves.set()

    async def dial(self) -> Ends:
        """A connection, as soon as there is a store. Raises OSError."""
        await self._serves.wait()
        link = socket.socket()
        try:
            if self.signed:
                sign(link, self._key)
            link.setblocking(False)
            await asyncio.get_running_loop().sock_connect(link, self.address)
            return await asyncio.open_connection(sock=link)
        except BaseException:
            link.close()
            raise

    def _begin(self) -> object:
        """torch's own client, which is a part of its store, cannot sign. So the key comes behind
        it, and whoever else was as quick has to go."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # takes a second

        ask_nobody()
        fd = os.dup(self._listener.fileno())
        store = TCPStore(
            HOST, self.address[1], is_master=True, wait_for_workers=False, master_listen_fd=fd
        )
        self.signed = sign(self._listener, self._key)
        if self.signed:
            while queued(self._listener):
                time.sleep(QUEUED_S)
            end_others(self._listener)
        return store


if __name__ == "__main__":
    main()
