# SPDX-License-Identifier: Apache-2.0
"""`python -m trainmover.fork_server MODULE ...`: import the modules, then fork when asked.

A module may have a function `before_forks`, for what all that are forked would do.
"""

import argparse
import gc
import importlib
import socket
import sys

from trainmover.fork_server.fitness import unfit
from trainmover.fork_server.pages import use_huge_pages
from trainmover.fork_server.serving import serve
from trainmover.fork_server.wire import READY
from trainmover.lifeline import die_with, end_quickly


def main() -> None:
    """0 when nobody can ask any more; 1, and nothing was said, if nothing may be forked from us."""
    parser = argparse.ArgumentParser(prog="python -m trainmover.fork_server", description=__doc__)
    parser.add_argument("modules", nargs="+", metavar="MODULE")
    parser.add_argument("--parent", type=int, required=True, metavar="PID")
    parser.add_argument("--socket", type=int, required=True, metavar="FD")
    options = parser.parse_args()
    die_with(options.parent)
    sock = socket.socket(fileno=options.socket)
    sock.set_inheritable(False)
    for module in options.modules:
        getattr(importlib.import_module(module), "before_forks", _no_preparation)()
    if unfit():
        sys.exit(1)
    gc.collect()
    gc.freeze()  # Collections in children need not touch, and so copy, what all share.
    use_huge_pages()
    sock.send(READY)
    birth = serve(sock)
    if birth is not None:
        sys.argv = [birth.module, *birth.arguments]
        if not birth.asks:
            sys.path.insert(0, "")  # As `python -m` has it; an agent is started with -P.
        end_quickly(importlib.import_module(birth.module).main() or 0)


def _no_preparation() -> None: ...


if __name__ == "__main__":
    main()
