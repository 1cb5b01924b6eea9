"""`python -m trainmover.server.store`: torch's key-value store in a process of its own.

Groups meet in it. It is no rank's, so it outlives every rank; and `trainmover run` itself need not
import torch. It listens on the loopback interface, and has a door for other hosts if it is given
one. The port of the one that machines use is printed as soon as it listens; who connects before
torch is imported waits.
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
from trainmover.protocol.crowd import QUEUE
from trainmover.server.store_door import StoreDoor
from trainmover.tls.files import all_or_none
from trainmover.token_file import read_token

HOST = "127.0.0.1"


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--door", metavar="HOST", help="for those who prove the token")
    parser.add_argument("--token-file", type=Path, metavar="FILE")
    for flag in ("--tls-cert", "--tls-key", "--tls-ca"):
        parser.add_argument(flag, default="", metavar="FILE")
    options = parser.parse_args()
    die_with(options.parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    listener = socket.create_server((HOST, 0), backlog=QUEUE)
    address = listener.getsockname()
    door = socket.create_server((options.door, 0), backlog=QUEUE) if options.door else None
    print((door or listener).getsockname()[1], flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # after the port is out: this takes a second

    ask_nobody()
    store = TCPStore(
        HOST, address[1], is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    if door is not None:
        files = all_or_none(options.tls_cert, options.tls_key, options.tls_ca)
        tls = None if files is None else files.read()
        asyncio.run(StoreDoor(read_token(options.token_file), address, tls).serve(door))
    while store:
        signal.pause()


if __name__ == "__main__":
    main()
