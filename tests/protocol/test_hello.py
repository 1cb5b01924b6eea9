"""Only who knows the token can answer, and only for the service that asked."""

import pytest

from trainmover.errors import ProtocolError
from trainmover.protocol.hello import ANSWER_BYTES, CHALLENGE_BYTES, answer, check_answer

TOKEN, CHALLENGE = b"k" * 16, bytes(range(CHALLENGE_BYTES))


def test_the_right_answer_is_taken() -> None:
    given = answer(TOKEN, CHALLENGE, "control")
    assert len(given) == ANSWER_BYTES
    check_answer(TOKEN, CHALLENGE, "control", given)


@pytest.mark.parametrize(
    "given",
    [
        answer(b"l" * 16, CHALLENGE, "control"),
        answer(TOKEN, CHALLENGE[::-1], "control"),
        answer(TOKEN, CHALLENGE, "vault"),
        answer(TOKEN, CHALLENGE, "control")[:-1],
        bytes(ANSWER_BYTES),
        b"",
    ],
    ids=["token", "challenge", "purpose", "short", "zeros", "nothing"],
)
def test_any_other_answer_is_refused(given: bytes) -> None:
    with pytest.raises(ProtocolError, match="wanted to use control does not know") as refusal:
        check_answer(TOKEN, CHALLENGE, "control", given)
    assert TOKEN.decode() not in str(refusal.value)


def test_purpose_and_challenge_cannot_be_shifted_into_each_other() -> None:
    assert answer(TOKEN, b"\0rest", "a") != answer(TOKEN, b"rest", "a\0")[:-1]
    assert answer(TOKEN, b"bc", "a") != answer(TOKEN, b"c", "ab")
