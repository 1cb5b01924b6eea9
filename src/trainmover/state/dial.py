"""Blocking connections between processes of one job, for threads: dial, accept, hello.

Both ends prove that they know the job's token (protocol.hello) before anything else is read. A
listener that refuses says so with a wrong answer, so that the dialler can tell a wrong token
(ProtocolError: somebody must fix it) from a peer that died in between (PeerLost: it happens).
"""

import secrets
import socket
import time

from trainmover.errors import PeerLost
from trainmover.protocol.hello import ANSWER_BYTES, CHALLENGE_BYTES, answer, check_answer

HELLO_TIMEOUT_S = 5.0
REFUSAL = bytes(ANSWER_BYTES)


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6]:port"."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def dial(
    address: str, *, token: bytes, purpose: str, timeout_s: float = HELLO_TIMEOUT_S
) -> socket.socket:
    """A blocking connection to the service `purpose` at `address`; the caller closes it.

    Raises PeerLost if nobody answers within `timeout_s`, ProtocolError if the token is not theirs.
    """
    deadline = time.monotonic() + timeout_s
    try:
        link = socket.create_connection(parse_address(address), timeout_s)
    except OSError as error:
        raise _unreachable(address, purpose, error) from error
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _hello_dialler(link, token, purpose, deadline)
        link.settimeout(None)
    except OSError as error:
        link.close()
        raise _unreachable(address, purpose, error) from error
    except BaseException:
        link.close()
        raise
    return link


def greet(link: socket.socket, *, token: bytes, purpose: str) -> None:
    """The listener's side of the hello. Raises ProtocolError (having refused) or OSError."""
    deadline = time.monotonic() + HELLO_TIMEOUT_S
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    link.settimeout(HELLO_TIMEOUT_S)
    link.sendall(challenge)
    given = receive(link, ANSWER_BYTES + CHALLENGE_BYTES, deadline)
    link.sendall(welcome(token, challenge, purpose, given))
    check_answer(token, challenge, purpose, given[:ANSWER_BYTES])


def welcome(token: bytes, challenge: bytes, purpose: str, given: bytes) -> bytes:
    """What a listener sends back: its own answer, or the refusal if the dialler's is wrong."""
    if not secrets.compare_digest(answer(token, challenge, purpose), given[:ANSWER_BYTES]):
        return REFUSAL
    return answer(token, given[ANSWER_BYTES:], purpose)


def _hello_dialler(link: socket.socket, token: bytes, purpose: str, deadline: float) -> None:
    challenge = receive(link, CHALLENGE_BYTES, deadline)
    own = secrets.token_bytes(CHALLENGE_BYTES)
    link.sendall(answer(token, challenge, purpose) + own)
    check_answer(token, own, purpose, receive(link, ANSWER_BYTES, deadline))


def receive(link: socket.socket, count: int, deadline: float) -> bytes:
    """Exactly `count` bytes. Raises OSError at the deadline (time.monotonic) or a stream's end."""
    data = b""
    while len(data) < count:
        link.settimeout(max(0.001, deadline - time.monotonic()))
        part = link.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the connection was closed")
        data += part
    return data


def _unreachable(address: str, purpose: str, error: OSError) -> PeerLost:
    return PeerLost(
        f"The {purpose} service at {address} cannot be reached: {error}.",
        means="Its process is gone or stopped, or the network between the two is down.",
        do="Nothing by hand: the job takes another source, or reports that there is none.",
    )
