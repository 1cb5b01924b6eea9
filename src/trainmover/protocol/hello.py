"""Proof that both ends of a new connection know the job's token, without sending it. Pure.

    listener -> dialler   challenge: 16 random bytes
    dialler  -> listener  answer(token, challenge, purpose), own challenge
    listener -> dialler   answer(token, dialler's challenge, purpose)

All three are fixed-size raw bytes, so that nothing is parsed before the peer is known. The purpose
names the listener's service: an answer for one service is worthless at another.
"""

import hashlib
import hmac

from trainmover.errors import ProtocolError

CHALLENGE_BYTES = 16
ANSWER_BYTES = 32
TOKEN_BYTES_MIN = 16


def answer(token: bytes, challenge: bytes, purpose: str) -> bytes:
    """HMAC-SHA256 over purpose and challenge, 32 bytes."""
    return hmac.new(token, purpose.encode() + b"\0" + challenge, hashlib.sha256).digest()


def check_answer(token: bytes, challenge: bytes, purpose: str, given: bytes) -> None:
    """Raise ProtocolError unless `given` answers `challenge`; takes constant time."""
    if not hmac.compare_digest(answer(token, challenge, purpose), given):
        raise ProtocolError(
            f"A peer that wanted to use {purpose} does not know this job's token.",
            means="It was refused; the job did not notice.",
            do="Start agents and commands with the token file of this job (--token-file).",
        )
