"""Only who knows the token comes in, only to the service it asked for, and it knows the same."""

import pytest

from trainmover.errors import ProtocolError
from trainmover.protocol.hello import (
    ANSWER_BYTES,
    CHALLENGE_BYTES,
    REFUSAL,
    TLS_ONLY,
    Greeting,
    Proof,
    answer,
)

TOKEN, OTHER = b"k" * 16, b"l" * 16
MINE, THEIRS = bytes(range(CHALLENGE_BYTES)), bytes(range(CHALLENGE_BYTES))[::-1]


def proof() -> Proof:
    return Proof(TOKEN, "control", MINE)


@pytest.mark.parametrize("at_once", [1, 7, 16, 17, 48])
def test_both_ends_prove_themselves_in_whatever_pieces_it_comes(at_once: int) -> None:
    dialler, door = proof(), Greeting(TOKEN, "control", THEIRS)
    towards_door, towards_dialler = dialler.challenge, door.challenge
    while towards_door or towards_dialler:
        piece, towards_door = towards_door[:at_once], towards_door[at_once:]
        back, towards_dialler = towards_dialler[:at_once], towards_dialler[at_once:]
        towards_dialler += door.hear(piece) if piece else b""
        towards_door += dialler.hear(back) if back else b""
    assert dialler.proved
    assert door.proved
    assert dialler.missing == door.missing == 0
    assert door.rest == b""


WRONG = {
    "token": answer(OTHER, MINE, "control"),
    "challenge": answer(TOKEN, MINE[::-1], "control"),
    "purpose": answer(TOKEN, MINE, "vault"),
    "refusal": REFUSAL,
    "too much": answer(TOKEN, MINE, "control") + b"x",
}


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_a_dialler_takes_no_other_answer(given: bytes) -> None:
    dialler = proof()
    assert dialler.hear(THEIRS) == answer(TOKEN, THEIRS, "control")
    with pytest.raises(ProtocolError, match="control service refused") as refusal:
        dialler.hear(given)
    assert not dialler.proved
    assert TOKEN.decode() not in str(refusal.value)


@pytest.mark.parametrize("given", [*list(WRONG.values())[:4], bytes(ANSWER_BYTES)])
def test_a_door_takes_no_other_answer(given: bytes) -> None:
    door = Greeting(TOKEN, "control", MINE)
    assert door.hear(THEIRS + given[:-1]) == b""
    assert door.hear(given[-1:]) == REFUSAL
    assert not door.proved
    assert door.rest == b""


def test_what_follows_a_proof_is_kept_for_who_reads_on() -> None:
    door = Greeting(TOKEN, "control", MINE)
    assert door.hear(THEIRS + answer(TOKEN, MINE, "control") + b"first words")
    assert door.rest == b"first words"


def test_why_a_connection_ended_is_told_from_what_was_heard() -> None:
    silent, reset = proof(), ConnectionResetError("by peer")
    assert isinstance(silent.ended(), ConnectionResetError)
    assert silent.ended(reset) is reset
    refused = proof()
    assert refused.hear(TLS_ONLY) == b""
    assert "speaks TLS" in str(refused.ended(reset))


def test_purpose_and_challenge_cannot_be_shifted_into_each_other() -> None:
    assert answer(TOKEN, b"\0rest", "a") != answer(TOKEN, b"rest", "a\0")[:-1]
    assert answer(TOKEN, b"bc", "a") != answer(TOKEN, b"c", "ab")
