"""A peer made of a plain socket: it knows the job's token and says what no real peer would."""

import socket
import struct
from contextlib import suppress
from secrets import token_bytes
from typing import Any

from trainmover import _native

HELLO_MAGIC = 0x48434D54
VERSION = 5
GREETING = struct.Struct("<IHHQQ32s")  # magic, version, sealed, from, to, nonce
ANSWER = struct.Struct("<IHH32s32s")  # magic, version, sealed, nonce, proof
VERDICT = struct.Struct("<I60s")
HEADER = struct.Struct("<IIQQQQQQ")  # kind, length, group, epoch, a, b, tag low, tag high
KINDS = ["data", "credit", "letter", "clear", "body", "read", "waiting", "broken", "replaced"]
KINDS += ["farewell", "leaving"]
PAYLOAD_MAX = 256 << 10
REASON_MAX = 512
LONGEST = {
    "data": PAYLOAD_MAX,
    "letter": PAYLOAD_MAX,
    "body": PAYLOAD_MAX,
    "broken": REASON_MAX,
    "replaced": REASON_MAX,
}
PATIENCE_S = 30.0


def signed(head: bytes, key: bytes, number: int) -> bytes:
    """The 56 bytes with the code that makes them the header of that frame."""
    assert len(head) == HEADER.size
    return head + struct.pack("<Q", _native.siphash(key, head + struct.pack("<Q", number)))


def words(kind: str | int, group: int = 0, epoch: int = 0, length: int = 0, **more: int) -> bytes:
    """A header without its code, whatever it says. `more`: a, b, low, high."""
    number = KINDS.index(kind) + 1 if isinstance(kind, str) else kind
    rest = [more.get(word, 0) for word in ("a", "b", "low", "high")]
    return HEADER.pack(number, length, group, epoch, *rest)


def with_byte(said: bytes, at: int, value: int) -> bytes:
    return said[:at] + bytes([value]) + said[at + 1 :]


def flipped(said: bytes, at: int) -> bytes:
    """`said`, but for one bit of the byte at `at` (from the end, where that is negative)."""
    at %= len(said)
    return with_byte(said, at, said[at] ^ 1)


class RawLink(socket.socket):
    """A connection to an endpoint, at one of the two addresses of its card."""

    def __init__(self, address: str) -> None:
        self.address = address
        local = address.startswith("/")
        super().__init__(socket.AF_UNIX if local else socket.AF_INET)
        self.settimeout(PATIENCE_S)
        host, _, port = address.rpartition(":")
        self.connect(address if local else (host, int(port)))
        self.key_out = self.key_in = b""
        self.said = self.heard = 0  # headers, in each direction
        self.pair: Any = None  # of X25519, where the link is to be encrypted
        self.seals: Any = ()  # of what is said and heard, where it is

    def header(self, kind: str | int, *args: int, **more: int) -> bytes:
        """The next header to say, with the code that the other end expects."""
        self.said += 1
        return signed(words(kind, *args, **more), self.key_out, self.said - 1)

    def frame(self, kind: str, payload: bytes, **more: int) -> bytes:
        """Likewise, with what it carries, encrypted where the link is."""
        head = self.header(kind, length=len(payload), **more)
        if not self.seals or not payload:
            return head + payload
        return head + bytes(self.seals[0].encrypt(number_once(self.said - 1), payload, head))

    def agree(self, said: bytes, nonce: bytes) -> None:
        """Take the keys of a hello that ended well, as who dialled."""
        shared = bytes(32)
        if self.pair is not None:
            from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            shared = self.pair.exchange(X25519PublicKey.from_public_bytes(nonce))
        secret = _native.hmac_sha256(shared, said)
        keys = [_native.hmac_sha256(secret, b"frames of the " + end) for end in ENDS]
        self.key_out, self.key_in = (key[:16] for key in keys)
        if self.pair is not None:
            keys = [_native.hmac_sha256(secret, b"payload of the " + end) for end in ENDS]
            self.seals = tuple(map(AESGCM, keys))


ENDS = b"dialler", b"listener"
SEAL_BYTES = 16


def number_once(number: int) -> bytes:
    """What a record of that number is sealed with, beside the key."""
    return bytes(4) + number.to_bytes(8, "little")


dial = RawLink


def read_exactly(link: socket.socket, size: int) -> bytes:
    """That many bytes, or fewer when the other end has closed."""
    got = b""
    with suppress(ConnectionResetError, BrokenPipeError):
        while len(got) < size and (piece := link.recv(size - len(got))):
            got += piece
    return got


def is_closed(link: socket.socket) -> bool:
    """Reads to the end: True when the other side closes. Fails when it never does."""
    link.settimeout(PATIENCE_S)
    with suppress(ConnectionResetError, BrokenPipeError):
        while link.recv(1 << 16):
            pass
    return True


def greet(link: RawLink, token: bytes, to: int, **wrong: Any) -> tuple[int, str]:
    """The dialler's side of the hello. Returns the verdict: accepted (1) or not, and why not.

    wrong  a field to get wrong on purpose: magic, version, source, address; `passes`: a descriptor
            that comes with the proof
    """
    source = wrong.get("source", int.from_bytes(token_bytes(7), "little") + 1)
    version, magic = wrong.get("version", VERSION), wrong.get("magic", HELLO_MAGIC)
    pair = link.pair
    nonce = token_bytes(32) if pair is None else pair.public_key().public_bytes_raw()
    greeting = GREETING.pack(magic, version, pair is not None, source, to, nonce)
    link.sendall(greeting)
    answer = read_exactly(link, ANSWER.size)
    if len(answer) < ANSWER.size:
        return 0, "closed before the answer"
    nonce = ANSWER.unpack(answer)[3]
    address = wrong.get("address", link.address).encode()
    with suppress(ConnectionResetError, BrokenPipeError):
        said = greeting + nonce + address
        proof = _native.hmac_sha256(token, b"trainmover dialler" + said)
        socket.send_fds(link, [proof], [wrong["passes"]] if "passes" in wrong else [])
    verdict = read_exactly(link, VERDICT.size)
    if len(verdict) < VERDICT.size:
        return 0, "closed before the verdict"
    accepted, reason = VERDICT.unpack(verdict)
    link.agree(_native.hmac_sha256(token, b"trainmover keys" + said), nonce)
    return accepted, reason.rstrip(b"\0").decode()


def joined(address: str, token: bytes, to: int) -> RawLink:
    """A link that has been accepted."""
    link = dial(address)
    assert greet(link, token, to) == (1, "")
    return link


# magic, slot, incarnation, nonce, life, region, lengths of host, address and path, 0
CARD = struct.Struct("<IIQQQQIIII")
CARD_MAGIC = 0x33434D54
LOWEST = 1  # the process with the lower number dials first, so this one always does


def card(incarnation: int, host: str, address: str, path: str = "") -> bytes:
    """What a seat publishes, as a process says it that has no memory to share."""
    return _card((CARD_MAGIC, 256 << 10, incarnation, 1, 0, 0), (host, address, path))


def moved(card: bytes, host: str, address: str, path: str) -> bytes:
    """Somebody's card, but for where it says that its process can be reached."""
    return _card(CARD.unpack_from(card)[:6], (host, address, path))


def _card(words: tuple[int, ...], texts: tuple[str, ...]) -> bytes:
    said = [text.encode() for text in texts]
    return CARD.pack(*words, *map(len, said), 0) + b"".join(said)


def next_frame(link: RawLink) -> tuple[dict[str, int], bytes]:
    """The words of the next header, whose code must be right, and its payload."""
    head = read_exactly(link, 64)
    assert len(head) == 64, "the link was closed"
    assert head == signed(head[: HEADER.size], link.key_in, link.heard)
    link.heard += 1
    names = ("kind", "length", "group", "epoch", "a", "b", "low", "high")
    said = dict(zip(names, HEADER.unpack_from(head), strict=True))
    if not link.seals or not said["length"]:
        return said, read_exactly(link, said["length"])
    sealed = read_exactly(link, said["length"] + SEAL_BYTES)
    return said, bytes(link.seals[1].decrypt(number_once(link.heard - 1), sealed, head))
