# SPDX-License-Identifier: Apache-2.0
"""The one endpoint of this process: its listener, its links, shared by all of its groups.

An endpoint speaks only to those who know its token. Under the runtime that is the job's. In a plain
process the group that connects first brings one, drawn by its seat 0; scripts that make a second
world with other processes may bring a second one, so endpoints are kept by their tokens.
"""

import atexit
import os
import secrets
import threading
from pathlib import Path

from trainmover import _native
from trainmover.comm.native.completer import Completer
from trainmover.descriptors import shares
from trainmover.tls.files import TlsFiles

HOST_ID = "TRAINMOVER_HOST_ID"
ADDRESS = "TRAINMOVER_ADDRESS"
"""Where processes on other hosts reach this one."""
SOCKETS = "TRAINMOVER_SOCKETS"
"""Folder where processes on this host meet; without it an endpoint makes one of its own."""
_LOOPBACK = "127.0.0.1"
_TOKEN_BYTES = 32


class OpenEndpoint:
    """An endpoint and the thread that tells of finished calls, if anybody asks."""

    def __init__(self, token: bytes) -> None:
        self.token = token
        self.process = os.getpid()
        address, folder = os.environ.get(ADDRESS, _LOOPBACK), os.environ.get(SOCKETS, "")
        self.native = _native.Endpoint(
            token,
            host_id(),
            address,
            folder,
            _library(),
            strangers_max=shares().native_strangers,
        )
        self.completer = Completer(self.native)

    def close(self) -> None:
        """Abort all groups and join the threads."""
        self.native.close()
        self.completer.join()


_open: dict[bytes, OpenEndpoint] = {}
_newest: list[bytes] = []
_lock = threading.Lock()


def endpoint(token: bytes) -> OpenEndpoint:
    """The endpoint of this process for `token`, opened at the first call.

    A forked child gets its own: its parent's threads do not exist there.
    """
    with _lock:
        known = _open.get(token)
        if known is None or known.process != os.getpid():
            _forget_parents()
            known = _open[token] = OpenEndpoint(token)
            _newest[:] = [token]
        return known


def token_to_offer() -> bytes:
    """What seat 0 of a plain group brings: what this process has already, or a fresh secret."""
    with _lock:
        mine = [e.token for e in _open.values() if e.process == os.getpid()]
        return _newest[0] if mine else secrets.token_bytes(_TOKEN_BYTES)


def received() -> int:
    """Bytes that have come over links so far, whatever they are."""
    return sum(link["received"] for known in list(_open.values()) for link in known.native.links())


def host_id() -> str:
    """Equal for processes that can share memory: same running kernel, network, files and user."""
    given = os.environ.get(HOST_ID)
    if given:
        return given
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    spaces = [os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("net", "mnt")]
    return "/".join(map(str, [boot, *spaces, os.geteuid()]))


def _library() -> str:
    """What encrypts the links of a job with TLS; "" without. Raises UserError."""
    if TlsFiles.of_environment(os.environ) is None:
        return ""
    from trainmover.tls import libcrypto

    return libcrypto.path()


def _forget_parents() -> None:
    """Called under the lock: endpoints from before a fork are not ours to close."""
    for token, known in list(_open.items()):
        if known.process != os.getpid():
            _abandoned.append(_open.pop(token))


_abandoned: list[OpenEndpoint] = []
"""Kept for ever: to destroy them would join threads that are not there."""


def close_all() -> None:
    """Close what this process has opened. Groups of it are of no use afterwards."""
    with _lock:
        mine = [known for known in _open.values() if known.process == os.getpid()]
        _open.clear()
    for known in mine:
        known.close()


atexit.register(close_all)
