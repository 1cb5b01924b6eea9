# SPDX-License-Identifier: Apache-2.0
"""What TLS needs in one process of a job: a context to listen with, and one to dial with.

Whoever dials checks that the certificate comes from the job's authority, is in date, and names the
host that was dialled. Whoever listens asks for no certificate: peers prove the token.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainmover import ownership
from trainmover.errors import UserError
from trainmover.protocol.hello import TLS_ONLY
from trainmover.tls import refusals
from trainmover.tls.files import TlsFiles
from trainmover.tls.secure_socket import SecureSocket
from trainmover.tls.stream import Secured, begins_like_tls

_FLIGHTS_MAX = 8
_DRAIN_BYTES = 65536


class Tls:
    """Contexts of the files of one job. Raises UserError for files that cannot be used."""

    def __init__(self, files: TlsFiles) -> None:
        self._serving = _serving(files)
        self._trust = trusting(files.ca)

    def behind(
        self, protocol: asyncio.Protocol, heard: Callable[[asyncio.Transport], None]
    ) -> asyncio.Protocol:
        """A listener's protocol, to be spoken to in TLS. heard: told of its connection as soon as
        anything is said on it."""
        return Secured(protocol, self._serving, heard=heard)

    def towards(self, protocol: asyncio.Protocol, host: str, purpose: str) -> asyncio.Protocol:
        """A dialler's. What is wrong with the listener comes with `connection_lost`."""
        return Secured(protocol, self._trust, refusals.Listener(host, purpose))

    def accept(self, link: socket.socket) -> SecureSocket:
        """A listener's connection that does not block; `shake_hands` until that is True."""
        return self._wrap(link, self._serving, server_side=True, do_handshake_on_connect=False)

    def dial(self, link: socket.socket, host: str, purpose: str) -> SecureSocket:
        """A dialler's connection, the listener known; within the timeout that is set.

        Raises ProtocolError for a listener that is not the job's, ConnectionResetError if it hung
        up, TimeoutError.
        """
        try:
            return self._wrap(link, self._trust, server_hostname=host)
        except ssl.SSLError as error:
            raise refusals.Listener(host, purpose).refused(error) from error

    def recognise(self, link: socket.socket) -> None:
        """Raises OSError for one that said something else than TLS; it is told. Looks at no more
        than its first byte."""
        first = link.recv(1, socket.MSG_PEEK)
        if not begins_like_tls(first):
            link.recv(_DRAIN_BYTES)  # Else the kernel resets the connection, and nobody is told.
            link.send(TLS_ONLY)
            raise ConnectionAbortedError("it does not speak TLS")

    def shake_hands(self, link: socket.socket) -> bool:
        """Go on with a handshake as far as what has come allows: whether it is done.

        Raises OSError if the peer is gone, or cannot shake hands.
        """
        assert isinstance(link, SecureSocket)
        try:
            link.do_handshake()
        except BlockingIOError:
            return False
        return True

    def _wrap(self, link: socket.socket, context: ssl.SSLContext, **how: Any) -> SecureSocket:
        wrapped = context.wrap_socket(link, **how)
        assert isinstance(wrapped, SecureSocket)
        return wrapped


def trusting(ca: str) -> ssl.SSLContext:
    """For who dials: believes these authorities and no others. Raises UserError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.sslsocket_class = SecureSocket
    try:
        context.load_verify_locations(cafile=ca)
    except OSError as error:
        raise refusals.unfit(f"The authority {ca} cannot be used", error) from error
    return context


def check(files: TlsFiles, host: str) -> datetime:
    """Raises UserError unless those who believe the authority would believe the certificate, shown
    by a listener at `host`. Until when they will."""
    try:
        shown = _shake_hands_with_oneself(_serving(files), trusting(files.ca), host)
    except ssl.SSLError as error:
        raise refusals.unfit(
            f"The certificate {files.cert} would not be believed", error
        ) from error
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(shown["notAfter"]), UTC)


def _serving(files: TlsFiles) -> ssl.SSLContext:
    _check_private(files.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # In 1.2 a client may resume a session.
    context.num_tickets = 0  # Nobody resumes; and no byte comes that is not the peer's own.
    context.sslsocket_class = SecureSocket
    try:
        context.load_cert_chain(files.cert, files.key, password=_no_password(files.key))
    except OSError as error:
        what = f"The certificate {files.cert} with the key {files.key} cannot be used"
        raise refusals.unfit(what, error) from error
    return context


def _check_private(key: str) -> None:
    try:
        found = Path(key).stat()
    except OSError as error:
        raise refusals.unfit(f"The key {key} cannot be used", error) from error
    if not ownership.is_trusted(found):
        raise _known_to_others(key, f"belongs to {ownership.owner(found)}", "Give one of your own.")
    if why := ownership.why_open(found):
        raise _known_to_others(key, why, f"chmod 600 {key}")


def _known_to_others(key: str, why: str, do: str) -> UserError:
    means = "Nothing was started, and nothing was connected to."
    return UserError(f"The key {key} {why}.", means=means, do=do)


def _no_password(key: str) -> Callable[[], str]:
    """Else OpenSSL asks at the terminal, in every process."""

    def refuse() -> str:
        raise UserError(
            f"The key {key} is encrypted.",
            means="Nothing was started: processes of a run cannot ask for a password.",
            do=f"Give one that is not, for your user only: openssl pkey -in {key} -out FILE",
        )

    return refuse


def _shake_hands_with_oneself(
    serving: ssl.SSLContext, trust: ssl.SSLContext, host: str
) -> dict[str, Any]:
    """In memory; the certificate that the dialler has seen. Raises SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialler = trust.wrap_bio(down, up, server_hostname=host)
    listener = serving.wrap_bio(up, down, server_side=True)
    for _ in range(_FLIGHTS_MAX):
        for end in (dialler, listener):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return dialler.getpeercert() or {}
