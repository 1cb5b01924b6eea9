"""Proof that both ends of a new connection know the job's token, without sending it. Pure.

    dialler  -> listener  challenge: 16 random bytes
    listener -> dialler   challenge: as many
    dialler  -> listener  answer(token, listener's challenge, purpose)
    listener -> dialler   answer(token, dialler's challenge, purpose)

All of it is fixed-size raw bytes, so that nothing is parsed before the peer is known. The purpose
names the listener's service: an answer for one service is worthless at another. A listener that
refuses says so with a wrong answer, so that the dialler can tell a wrong token, which somebody must
mend, from a connection that was closed, which happens.

Neither waits for the other's first word, so a door that speaks TLS hears at once from who does not,
and tells it.
"""

import hashlib
import hmac

from trainmover.errors import ProtocolError

CHALLENGE_BYTES = 16
ANSWER_BYTES = 32
TOKEN_BYTES_MIN = 16
STORE = "store"
"""Purpose of the door that machines on other hosts come to the store by."""
REFUSAL = bytes(ANSWER_BYTES)
TLS_ONLY = bytes.fromhex("15 03 01 0002 02 46")
"""What a door that speaks TLS says to who does not: the alert `protocol_version`."""


def answer(token: bytes, challenge: bytes, purpose: str) -> bytes:
    """HMAC-SHA256 over purpose and challenge, 32 bytes."""
    return hmac.new(token, purpose.encode() + b"\0" + challenge, hashlib.sha256).digest()


def refused(purpose: str) -> ProtocolError:
    """Who dialled has given a wrong answer."""
    return ProtocolError(
        f"A peer that wanted to use {purpose} does not know this job's token.",
        means="It was refused; the job did not notice.",
        do="Start agents and commands with the token file of this job (--token-file).",
    )


def _tls_needed(purpose: str) -> ProtocolError:
    """The other end speaks TLS, and nothing else."""
    return ProtocolError(
        f"The {purpose} service speaks TLS, and this connection does not.",
        means="It was refused; the job did not notice.",
        do="Give the authority of the job's certificate (--tls-ca).",
    )


def _not_ours(purpose: str) -> ProtocolError:
    """Who listens has given a wrong answer, or refused ours."""
    return ProtocolError(
        f"The {purpose} service refused the connection: this token is not the job's.",
        means="What was to be done there was not done; the job did not notice.",
        do="Use the token file of this job (--token-file).",
    )


class _End:
    """One end of a new connection: fed with what comes, it says what to send back.

    challenge  to be said first
    proved  whether the other end knows the token
    """

    def __init__(self, token: bytes, purpose: str, challenge: bytes) -> None:
        self.challenge = challenge
        self.proved = False
        self._token = token
        self._purpose = purpose
        self._heard = b""

    @property
    def missing(self) -> int:
        """Bytes of the hello that have not come yet."""
        return CHALLENGE_BYTES + ANSWER_BYTES - len(self._heard)

    def _answer(self, challenge: bytes) -> bytes:
        return answer(self._token, challenge, self._purpose)

    def _is_answered(self, given: bytes) -> bool:
        """Whether `given` answers our challenge; takes constant time."""
        return hmac.compare_digest(self._answer(self.challenge), given)


class Proof(_End):
    """The dialler's."""

    def hear(self, data: bytes) -> bytes:
        """What to send back: our answer as soon as it is asked for, otherwise nothing.

        Raises ProtocolError for the listener's refusal, or for a wrong answer of its own.
        """
        asked = len(self._heard) >= CHALLENGE_BYTES
        self._heard += data
        theirs, given = self._heard[:CHALLENGE_BYTES], self._heard[CHALLENGE_BYTES:]
        if self.missing <= 0:
            if not self._is_answered(given):
                raise _not_ours(self._purpose)
            self.proved = True
        return b"" if asked or len(theirs) < CHALLENGE_BYTES else self._answer(theirs)

    def ended(self, why: Exception | None = None) -> Exception:
        """What to raise if the connection ends here: because of `why`, or because it was closed."""
        if self._heard == TLS_ONLY:
            return _tls_needed(self._purpose)
        return why or ConnectionResetError("the connection was closed")


class Greeting(_End):
    """The listener's. What the peer sent behind its proof is `rest`."""

    rest = b""

    def hear(self, data: bytes) -> bytes:
        """What to send back: nothing, as long as something is missing; our own answer, or the
        refusal, behind which the connection is to be closed."""
        self._heard += data
        if self.missing > 0:
            return b""
        theirs, behind = self._heard[:CHALLENGE_BYTES], self._heard[CHALLENGE_BYTES:]
        if not self._is_answered(behind[:ANSWER_BYTES]):
            return REFUSAL
        self.proved, self.rest = True, behind[ANSWER_BYTES:]
        return self._answer(theirs)
