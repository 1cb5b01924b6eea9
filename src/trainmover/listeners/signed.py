# SPDX-License-Identifier: Apache-2.0
"""TCP connections whose every segment the kernel signs with a key (RFC 2385, `TCP_MD5SIG`).

For a listener that knows no secret itself, such as torch's store: the kernel drops what others send
before a connection comes about, so that they cost no descriptor and are not heard.
"""

import os
import socket
import struct
from contextlib import suppress

import psutil  # type: ignore[import-untyped]

KEY_BYTES = 64
_TCP_MD5SIG_EXT, _FLAG_PREFIX = 32, 1  # linux/tcp.h
_TCP_INFO_BYTES, _UNACKED = 104, 24


def sign(link: socket.socket, key: bytes) -> bool:
    """Sign all that an IPv4 socket sends from now on, and take nothing else. Return False where the
    kernel cannot do that.

    A listener's new connections have the key; those that it has already are as they were.
    """
    anybody = struct.pack("=HH4s", socket.AF_INET, 0, bytes(4)).ljust(128, b"\0")
    option = anybody + struct.pack("=BBHi80s", _FLAG_PREFIX, 0, len(key), 0, key)
    try:
        link.setsockopt(socket.IPPROTO_TCP, _TCP_MD5SIG_EXT, option)
    except OSError:
        return False
    return True


def queued(listener: socket.socket) -> int:
    """Return how many connections wait to be accepted."""
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    (count,) = struct.unpack_from("=I", info, _UNACKED)
    return int(count)


def end_others(listener: socket.socket) -> int:
    """End the connections at a listener of this process that another process has dialled. Return
    how many there were."""
    here = listener.getsockname()
    links = [one for one in psutil.Process().net_connections("tcp4") if one.raddr]
    ours = {one.laddr for one in links if one.raddr == here}
    others = [one for one in links if one.laddr == here and one.raddr not in ours]
    for one in others:
        with suppress(OSError), socket.socket(fileno=os.dup(one.fd)) as link:
            link.shutdown(socket.SHUT_RDWR)
    return len(others)
