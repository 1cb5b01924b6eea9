# SPDX-License-Identifier: Apache-2.0
"""Proof that both ends of a new connection know the job's token, without sending it. Pure.

    both, at once         opening: version, fresh nonce, service, address, who I am, whom I mean
    listener -> dialler   proof(token, "listener", both openings)
    dialler  -> listener  proof(token, "dialler", both openings)

A proof counts for this one connection. The address is the one that the dialler has dialled and, on
the other side, the one that the listener's own socket has: who passes a connection on to another
listener, or to the same service elsewhere, has two ends that disagree, and hears nothing that it
could use. The listener proves itself first, so the dialler says nothing about the token to a
stranger.
From the token and both openings comes a key for each direction (`protocol.sealed`).

All of it is fixed-size raw bytes, names as hashes, so that nothing is parsed before the peer is
known. What a listener says of itself is covered by its proof, so whoever has dialled it through
somebody else learns for sure where it is. Who is refused is told only that: a dialler that takes
the proof for wrong says so with a wrong answer.

Neither waits for the other's first word, so a listener that speaks TLS hears at once from who does
not, and tells it.
"""

import hashlib
import hmac
import ipaddress
import struct
from dataclasses import dataclass
from functools import lru_cache

from trainmover.errors import ProtocolError
from trainmover.protocol.sealed import Session

PROTOCOL = 10
"""Of all that processes say to each other."""
NONCE_BYTES = 16
PROOF_BYTES = 32
TOKEN_BYTES_MIN = 16
STORE = "store"
"""The service by which machines come to the job's stores."""
TLS_ONLY = bytes.fromhex("15 03 01 0002 02 46")
"""What a listener that speaks TLS says to who does not: the alert `protocol_version`."""

_MAGIC = b"tmhello"
_NAME_BYTES = 16
_OPENING = struct.Struct(f">{len(_MAGIC)}sB{NONCE_BYTES}s16s16sH16s16s16s")
OPENING_BYTES = _OPENING.size
_VERSION_BYTES = len(_MAGIC) + 1
_REFUSAL = bytes(PROOF_BYTES)
_ANYBODY = bytes(_NAME_BYTES)
_REMEMBERED = 64
"""A listener has one address and a few names, and strangers may come fast."""
_LISTENER, _DIALLER = b"listener", b"dialler"


@dataclass(frozen=True)
class Where:
    """A listener's address, as one end of a connection sees it.

    loopback  whose loopback interface that is, where it is one: every host has the same addresses
    """

    host: str
    port: int
    loopback: bytes = b""

    @lru_cache(maxsize=_REMEMBERED)  # noqa: B019 of values, and few
    def same(self) -> tuple[bytes, int, bytes]:
        """Equal at both ends of a connection that nobody has passed on."""
        address = ipaddress.ip_address(self.host.partition("%")[0])
        if isinstance(address, ipaddress.IPv4Address):
            address = ipaddress.IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)
        own = hashed(self.loopback) if is_loopback(self.host) and self.loopback else _ANYBODY
        return address.packed, self.port, own


@dataclass(frozen=True)
class End:
    """What one end says of the connection.

    me, whom  names: of this end, and of the one that it means; "": it has none, it means anybody
    """

    service: str
    where: Where
    me: str = ""
    whom: str = ""

    def opening(self, nonce: bytes) -> bytes:
        """To be said first."""
        address, port, own = self.where.same()
        names = (_named(self.me), _named(self.whom))
        service = hashed(self.service.encode())
        return _OPENING.pack(_MAGIC, PROTOCOL, nonce, service, address, port, own, *names)


@dataclass(frozen=True)
class _Opening:
    """As it came from the other end."""

    magic: bytes
    version: int
    nonce: bytes
    service: bytes
    address: bytes
    port: int
    loopback: bytes
    me: bytes
    whom: bytes

    @property
    def where(self) -> str:
        address = ipaddress.IPv6Address(self.address)
        shown = address.ipv4_mapped or address
        return f"[{shown}]:{self.port}" if shown.version == 6 else f"{shown}:{self.port}"

    def at(self) -> tuple[bytes, int, bytes]:
        return self.address, self.port, self.loopback


@lru_cache(maxsize=_REMEMBERED)
def is_loopback(host: str) -> bool:
    """Whether an address, in numbers, is on a host's own interface."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


@lru_cache(maxsize=_REMEMBERED)
def hashed(name: bytes) -> bytes:
    """Of fixed size."""
    return hashlib.sha256(name).digest()[:_NAME_BYTES]


def _named(name: str) -> bytes:
    return hashed(name.encode()) if name else _ANYBODY


class _End:
    """One end of a new connection: fed with what comes, it says what to send back.

    opening  to be said first
    error    why this end refuses the other, once it does; what `hear` gives is still to be sent
    """

    def __init__(self, token: bytes, end: End, nonce: bytes) -> None:
        self.opening = end.opening(nonce)
        self.error: ProtocolError | None = None
        self._token = token
        self._end = end
        self._heard = b""
        self._session: Session | None = None

    @property
    def missing(self) -> int:
        """Bytes of the hello that have not come yet."""
        return OPENING_BYTES + PROOF_BYTES - len(self._heard)

    @property
    def proved(self) -> bool:
        """Whether the other end knows the token, and is the one that was meant."""
        return self._session is not None

    @property
    def session(self) -> Session:
        """Of the connection, once it is proved."""
        assert self._session is not None
        return self._session

    def _theirs(self) -> _Opening:
        return _Opening(*_OPENING.unpack(self._heard[:OPENING_BYTES]))

    def _speaks_otherwise(self) -> bool:
        """Looks at the first bytes: of another version nothing else is known."""
        given = self._heard[:_VERSION_BYTES]
        return len(given) == _VERSION_BYTES and given != self.opening[:_VERSION_BYTES]

    def _spoken(self) -> str:
        """What the other end speaks, as a part of a sentence."""
        if self._heard.startswith(_MAGIC):
            return f"protocol {self._heard[len(_MAGIC)]}"
        return "something else, or an older protocol"

    def _proof(self, role: bytes, openings: bytes) -> bytes:
        return _mac(self._token, b"proof of the " + role, openings)

    def _begin(self, openings: bytes, *, ours: bytes, theirs: bytes) -> None:
        says, hears = (
            _mac(self._token, b"frames of the " + role, openings) for role in (ours, theirs)
        )
        self._session = Session(says, hears, peer=self._theirs().me)


class Dialler(_End):
    """The end that has dialled."""

    def hear(self, data: bytes) -> bytes:
        """What to send back: our proof once the listener's is right, a refusal if it is not,
        otherwise nothing."""
        self._heard += data
        if self._speaks_otherwise():
            self.error = _other_version(self._end.service, self._spoken())
            return b""
        if self.missing > 0:
            return b""
        openings = self.opening + self._heard[:OPENING_BYTES]
        given = self._heard[OPENING_BYTES:]
        if not hmac.compare_digest(self._proof(_LISTENER, openings), given):
            self.error = _not_ours(self._end.service)
        else:
            self.error = self._other_than_meant(self._theirs())
        if self.error is not None:
            return _REFUSAL
        self._begin(openings, ours=_DIALLER, theirs=_LISTENER)
        return self._proof(_DIALLER, openings)

    def ended(self, why: Exception | None = None) -> Exception:
        """What to raise if the connection ends here: because of `why`, or because it was closed."""
        if self._heard == TLS_ONLY:
            return _tls_needed(self._end.service)
        return why or ConnectionResetError("the connection was closed")

    def _other_than_meant(self, theirs: _Opening) -> ProtocolError | None:
        """Of a listener that is of this job."""
        end = self._end
        if theirs.service != hashed(end.service.encode()):
            return _other_service(end.service, theirs.where)
        if theirs.at() != end.where.same():
            return _passed_on(end.service, _shown(end.where), theirs.where)
        if end.whom and theirs.me != _named(end.whom):
            return _other_one(end.service, _shown(end.where), end.whom)
        return None


class Listener(_End):
    """The end that was dialled. What the peer sent behind its proof is `rest`."""

    rest = b""
    _answered = False

    def hear(self, data: bytes) -> bytes:
        """What to send back: our proof, as soon as the dialler's opening is here.

        It is sent to a dialler that means somebody else, too, who learns from it who we are.
        """
        self._heard += data
        if self._speaks_otherwise():
            self.error = _came_with_other_version(self._end.service, self._spoken())
        if self.error is not None or len(self._heard) < OPENING_BYTES:
            return b""
        openings = self._heard[:OPENING_BYTES] + self.opening
        reply = b"" if self._answered else self._proof(_LISTENER, openings)
        self._answered = True
        self.error = self._means_another(self._theirs())
        if self.error is None and self.missing <= 0:
            self._judge(openings)
        return reply

    def _judge(self, openings: bytes) -> None:
        behind = self._heard[OPENING_BYTES:]
        given, rest = behind[:PROOF_BYTES], behind[PROOF_BYTES:]
        if not hmac.compare_digest(self._proof(_DIALLER, openings), given):
            self.error = refused(self._end.service)
            return
        self._begin(openings, ours=_LISTENER, theirs=_DIALLER)
        self.rest = rest

    def _means_another(self, theirs: _Opening) -> ProtocolError | None:
        """Of somebody who has proved nothing yet."""
        end = self._end
        if theirs.service != hashed(end.service.encode()):
            return _came_for(end.service, "wants another service")
        if theirs.at() != end.where.same():
            means = f"has dialled {theirs.where}, and this is {_shown(end.where)}"
            return _came_for(end.service, f"{means}: somebody passes connections on")
        if theirs.whom not in (_ANYBODY, _named(end.me)):
            return _came_for(end.service, f"means another one than {end.me or 'this'}")
        return None


def _mac(token: bytes, what: bytes, openings: bytes) -> bytes:
    """openings: the dialler's, then the listener's."""
    text = b"trainmover hello: " + what + b"\0" + openings
    return hmac.digest(token, text, "sha256")


def _shown(where: Where) -> str:
    return _Opening(b"", 0, b"", b"", *where.same(), b"", b"").where


def refused(service: str) -> ProtocolError:
    """Who dialled has given a wrong proof, or has taken ours for wrong."""
    return ProtocolError(
        f"A peer that wanted to use {service} does not know this job's token.",
        means="It was refused; the job did not notice.",
        do="Start agents and commands with the token file of this job (--token-file).",
    )


def _came_for(service: str, why: str) -> ProtocolError:
    return ProtocolError(
        f"A peer that came to {service} {why}.",
        means="It was refused; the job did not notice.",
        do="Look who it is. Machines dial each other directly, without a proxy or NAT.",
    )


def _came_with_other_version(service: str, version: str) -> ProtocolError:
    return ProtocolError(
        f"A peer that wanted to use {service} speaks {version}; this is protocol {PROTOCOL}.",
        means="It was refused; the job did not notice.",
        do="All processes of a job must run the same version of trainmover.",
    )


def _other_version(service: str, version: str) -> ProtocolError:
    return ProtocolError(
        f"The {service} service speaks {version}; this process speaks protocol {PROTOCOL}.",
        means="Nothing was asked of it; the job did not notice.",
        do="All processes of a job must run the same version of trainmover. Look whether the "
        "address is the job's.",
    )


def _tls_needed(service: str) -> ProtocolError:
    """The other end speaks TLS, and nothing else."""
    return ProtocolError(
        f"The {service} service speaks TLS, and this connection does not.",
        means="It was refused; the job did not notice.",
        do="Give the authority of the job's certificate (--tls-ca).",
    )


def _not_ours(service: str) -> ProtocolError:
    """Who listens has given a wrong proof."""
    return ProtocolError(
        f"Who listens for the {service} service does not prove it: this token is not the job's.",
        means="What was to be done there was not done; the job did not notice.",
        do="Use the token file of this job (--token-file). If it is, a stranger listens there, or "
        "changes what is said on the way.",
    )


def _other_service(service: str, where: str) -> ProtocolError:
    return ProtocolError(
        f"Who listens at {where} is of this job, but it is not the {service} service.",
        means="Nothing was asked of it; the job did not notice.",
        do="Look whether the address is the one that was meant.",
    )


def _passed_on(service: str, dialled: str, real: str) -> ProtocolError:
    at = f"the one at {real}" if real != dialled else "that of another host"
    return ProtocolError(
        f"The {service} service that was dialled at {dialled} is {at}: somebody between the two "
        "passes the connection on.",
        means="Nothing was asked of it; the job did not notice.",
        do="Where it is a proxy, a tunnel or NAT: dial the address that the service itself has. "
        "Otherwise a stranger has taken that port: look who listens there.",
    )


def _other_one(service: str, where: str, whom: str) -> ProtocolError:
    return ProtocolError(
        f"The {service} service at {where} is not that of {whom}, which was meant.",
        means="Nothing was asked of it; the job did not notice.",
        do="Another one listens there now. Look whether the address is the one that was meant.",
    )
