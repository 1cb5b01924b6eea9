# SPDX-License-Identifier: Apache-2.0
"""Ports for processes that must be told one, as torchrun's store is."""

import random
import socket
from contextlib import suppress
from pathlib import Path

_GIVEN_TO_ALL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 100


def free_port() -> int:
    """Nobody listens there, and it is none of those that the system gives to whoever asks for any:
    it stays free until who is told it listens. Raises OSError if none of many is free."""
    lowest = int(_GIVEN_TO_ALL.read_text().split()[0])
    for port in random.SystemRandom().sample(range(lowest // 2, lowest), _TRIES):
        with suppress(OSError), socket.create_server(("", port)):
            return port
    raise OSError(f"None of {_TRIES} ports from {lowest // 2} to {lowest} is free.")
