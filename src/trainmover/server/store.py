"""`python -m trainmover.server.store`: the job's key-value stores in a process of their own.

Groups meet in one, scripts keep what they like in the other, which is torch's. They are no rank's,
so they outlive every rank; and `trainmover run` itself need not import torch. Machines come to both
by a listener (`server.store_listener`), whose port is printed as soon as it listens.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from trainmover.lifeline import die_with
from trainmover.names import ask_nobody
from trainmover.protocol.unauthenticated import QUEUE
from trainmover.server.store_listener import StoreListener
from trainmover.tls.files import all_or_none
from trainmover.token_file import read_token

HOST = "127.0.0.1"


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--listen", metavar="HOST", required=True, help="where machines come")
    parser.add_argument("--token-file", type=Path, metavar="FILE", required=True)
    for flag in ("--tls-cert", "--tls-key", "--tls-ca"):
        parser.add_argument(flag, default="", metavar="FILE")
    options = parser.parse_args()
    die_with(options.parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    listener = socket.create_server((HOST, 0), backlog=QUEUE)
    outer = socket.create_server((options.listen, 0), backlog=QUEUE)
    print(outer.getsockname()[1], flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    files = all_or_none(options.tls_cert, options.tls_key, options.tls_ca)
    tls = None if files is None else files.read()
    stores = StoreListener(read_token(options.token_file), listener.getsockname(), tls)
    asyncio.run(_serve(stores, outer, listener))


async def _serve(stores: StoreListener, outer: socket.socket, listener: socket.socket) -> None:
    """Who wants torch's store before torch is imported waits for it; others do not."""
    await asyncio.gather(stores.serve(outer), asyncio.to_thread(_torch_store, listener))


def _torch_store(listener: socket.socket) -> object:
    """At that listener. It lasts as long as what is returned."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # which takes a second

    ask_nobody()
    port = listener.getsockname()[1]
    return TCPStore(
        HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )


if __name__ == "__main__":
    main()
