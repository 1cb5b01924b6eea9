# SPDX-License-Identifier: Apache-2.0
"""Which sockets of this process belong to a gloo group, and how to cut exactly those.

gloo does not tell its file descriptors and its own abort wakes nobody. But every connection of a
gloo device has the address of a gloo listener at one of its ends: ours (the peer connected to us)
or the peer's (we connected to it). The listener of a new device is found by comparing the listening
sockets before and after, under one lock for the process; the peers publish theirs in the store. A
socket that the script or the runtime opens meanwhile can not be taken for one of gloo's.

A listener is never shut down: gloo's loop thread ends the process when that happens. One that
nobody is to reach is closed behind its back: another descriptor, which never has anything to say,
takes its number.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")
_ONE_DEVICE_AT_A_TIME = threading.Lock()
_AS_IT_IS = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
"""Else, where a default timeout is set, Python has the descriptor block no more, and with it that
of whoever owns the socket: the script, or a connection of ours that waits."""


class OwnSocket(NamedTuple):
    """A socket of this process. A number alone may be reused, the inode tells."""

    fd: int
    inode: int


@contextmanager
def _duplicate(own: OwnSocket) -> Iterator[socket.socket]:
    """Another descriptor of the same socket, so that the owner may close his meanwhile.

    Raises OSError when the descriptor is closed or has become something else.
    """
    fd = os.dup(own.fd)
    if os.fstat(fd).st_ino != own.inode:
        os.close(fd)
        raise OSError("not the socket it was")
    with socket.socket(type=_AS_IT_IS, fileno=fd) as duplicate:
        yield duplicate


def _own_sockets() -> list[OwnSocket]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:["):
                found.append(OwnSocket(int(name), int(target[8:-1])))
    return found


def _address(raw: object) -> str:
    """`host port` of an internet socket, in one spelling; empty for other families."""
    if isinstance(raw, tuple) and len(raw) >= 2:
        return f"{str(raw[0]).removeprefix('::ffff:')} {raw[1]}"
    return ""


def _listeners() -> dict[OwnSocket, str]:
    found = {}
    for own in _own_sockets():
        with suppress(OSError), _duplicate(own) as duplicate:
            if duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found[own] = _address(duplicate.getsockname())
    return found


def with_new_listeners(create: Callable[[], _T]) -> tuple[_T, list[str]]:
    """Run `create`; also return the addresses on which this process listens since then."""
    with _ONE_DEVICE_AT_A_TIME:
        before = _listeners()
        created = create()
        return created, sorted(at for own, at in _listeners().items() if own not in before and at)


def without_listeners(create: Callable[[], _T]) -> _T:
    """Run `create`, and let nobody reach what it has made to listen."""
    with _ONE_DEVICE_AT_A_TIME:
        before = _listeners()
        created = create()
        for own in _listeners():
            if own not in before:
                _silence(own)
        return created


def _silence(own: OwnSocket) -> None:
    silent = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    os.dup2(silent, own.fd, inheritable=False)
    os.close(silent)


def connections_between(ours: set[str], theirs: set[str]) -> list[OwnSocket]:
    """The connected sockets that were accepted at one of `ours` or lead to one of `theirs`."""
    found = []
    for own in _own_sockets():
        with suppress(OSError), _duplicate(own) as duplicate:  # Not connected: OSError.
            peer = _address(duplicate.getpeername())
            if peer in theirs or _address(duplicate.getsockname()) in ours:
                found.append(own)
    return found


def cut(sockets: list[OwnSocket]) -> None:
    """Shut both directions down, so that whoever waits in them wakes. The owner still closes."""
    for own in sockets:
        with suppress(OSError), _duplicate(own) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
