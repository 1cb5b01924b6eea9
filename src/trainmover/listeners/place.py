# SPDX-License-Identifier: Apache-2.0
"""Where a connection ends, as its own socket has it."""

import socket
from functools import cache
from pathlib import Path
from typing import Any

from trainmover.protocol.hello import Where, is_loopback

_SO_NETNS_COOKIE = 71


def here(link: Any) -> Where:
    """Of a listener: where the connection has come to. link: a socket, or what asyncio shows."""
    return _where(link, link.getsockname())


def there(link: Any) -> Where:
    """Of a dialler: who has been reached. Raises OSError if that one is gone."""
    return _where(link, link.getpeername())


def _where(link: Any, name: tuple[Any, ...]) -> Where:
    host, port = name[:2]
    return Where(host, port, _loopback(link) if is_loopback(host) else b"")


def _loopback(link: Any) -> bytes:
    """Which of all loopback interfaces: both ends of a connection are on the same one."""
    try:
        cookie: bytes = link.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    except OSError:  # A kernel before 5.14: at both ends.
        return b""
    return _boot() + cookie


@cache
def _boot() -> bytes:
    """Of the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_bytes()
