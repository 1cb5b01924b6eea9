"""`python -m trainmover.server.store`: torch's key-value store in a process of its own.

Groups meet in it. It is no rank's, so it outlives every rank; and `trainmover run` itself need not
import torch. The port is printed as soon as it listens; who connects before torch is imported
waits.
"""

import argparse
import os
import signal
import socket
import sys

from trainmover.lifeline import die_with

HOST = "127.0.0.1"


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parent", type=int, required=True)
    die_with(parser.parse_args().parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    listener = socket.create_server((HOST, 0), backlog=1024)
    port = listener.getsockname()[1]
    print(port, flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # after the port is out: this takes a second

    store = TCPStore(
        HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    while store:
        signal.pause()


if __name__ == "__main__":
    main()
