"""Only who knows the token comes in, over the very connection that both ends have, and to whom it
meant."""

import itertools
from dataclasses import replace

import pytest

from trainmover.errors import ProtocolError
from trainmover.protocol.hello import (
    NONCE_BYTES,
    OPENING_BYTES,
    PROOF_BYTES,
    PROTOCOL,
    TLS_ONLY,
    Dialler,
    End,
    Listener,
    Where,
    is_loopback,
)

TOKEN, OTHER = b"k" * 16, b"l" * 16
MINE, THEIRS = bytes(range(NONCE_BYTES)), bytes(range(NONCE_BYTES))[::-1]
AT = Where("10.0.0.1", 7000)
DIALLED = End("control", AT, me="m1", whom="run")
LISTENS = End("control", AT, me="run")
MAGIC_BYTES = 7


def ends(dialled: End = DIALLED, listens: End = LISTENS) -> tuple[Dialler, Listener]:
    return Dialler(TOKEN, dialled, MINE), Listener(TOKEN, listens, THEIRS)


def meet(dialler: Dialler, listener: Listener, *, at_once: int = 1000) -> None:
    """As a network brings it, so many bytes at a time, until nothing more is said."""
    up, down = dialler.opening, listener.opening
    while up or down:
        piece, up = up[:at_once], up[at_once:]
        back, down = down[:at_once], down[at_once:]
        down += listener.hear(piece) if piece and listener.error is None else b""
        up += dialler.hear(back) if back and dialler.error is None else b""


def said() -> tuple[bytes, bytes]:
    """All that the dialler and the listener say when it goes well."""
    dialler, listener = ends()
    proof = listener.hear(dialler.opening)
    return dialler.opening + dialler.hear(listener.opening + proof), listener.opening + proof


@pytest.mark.parametrize("at_once", [1, 7, 16, 17, 106, 138, 1000])
def test_both_ends_prove_themselves_in_whatever_pieces_it_comes(at_once: int) -> None:
    dialler, listener = ends()
    meet(dialler, listener, at_once=at_once)
    assert dialler.proved
    assert listener.proved
    assert dialler.error is listener.error is None
    assert dialler.missing == listener.missing == 0
    assert listener.rest == b""


def test_what_they_say_then_is_understood_by_the_other_end_only() -> None:
    dialler, listener = ends()
    meet(dialler, listener)
    up, down = dialler.session.seal(b"up"), listener.session.seal(b"up")
    assert up != down
    head, rest = up[:20], up[20:]
    assert listener.session.length(head) == len(rest)
    assert listener.session.opened(rest) == b"up"
    with pytest.raises(ProtocolError, match="not what the other end has said"):
        dialler.session.length(head)


def test_every_connection_has_keys_of_its_own() -> None:
    sealed = set()
    for nonces in itertools.permutations([MINE, THEIRS, b"n" * NONCE_BYTES], 2):
        dialler, listener = Dialler(TOKEN, DIALLED, nonces[0]), Listener(TOKEN, LISTENS, nonces[1])
        meet(dialler, listener)
        sealed |= {dialler.session.seal(b"x"), listener.session.seal(b"x")}
    assert len(sealed) == 12


def test_the_listener_learns_who_has_proved_itself() -> None:
    dialler, listener = ends()
    meet(dialler, listener)
    another, again = ends(replace(DIALLED, me="m2"))
    meet(another, again)
    assert listener.session.peer != again.session.peer


# --- who is not meant -----------------------------------------------------------------------------

OTHERS = {
    "address": replace(LISTENS, where=Where("10.0.0.2", 7000)),
    "port": replace(LISTENS, where=Where("10.0.0.1", 7001)),
    "service": replace(LISTENS, service="vault"),
    "identity": replace(LISTENS, me="another run"),
    "no identity": replace(LISTENS, me=""),
}
WHY = {
    "address": "dialled at 10.0.0.1:7000 is the one at 10.0.0.2:7000: somebody between the two",
    "port": "dialled at 10.0.0.1:7000 is the one at 10.0.0.1:7001: somebody between the two",
    "service": "at 10.0.0.1:7000 is of this job, but it is not the control service",
    "identity": "at 10.0.0.1:7000 is not that of run, which was meant",
    "no identity": "is not that of run, which was meant",
}
WHO_CAME = {
    "address": "has dialled 10.0.0.1:7000, and this is 10.0.0.2:7000: somebody passes",
    "port": "has dialled 10.0.0.1:7000, and this is 10.0.0.1:7001: somebody passes",
    "service": "wants another service",
    "identity": "means another one than another run",
    "no identity": "means another one than this",
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("at_once", [1, 1000])
def test_a_connection_that_was_passed_on_is_refused_at_both_ends(other: str, at_once: int) -> None:
    """Both know the token, so each learns for sure what is wrong; and nothing of what the dialler
    has said would have proved anything."""
    dialler, listener = ends(listens=OTHERS[other])
    meet(dialler, listener, at_once=at_once)
    assert WHY[other] in str(dialler.error)
    assert WHO_CAME[other] in str(listener.error)
    assert not dialler.proved
    assert not listener.proved


@pytest.mark.parametrize("other", OTHERS)
def test_a_relay_that_lies_about_what_was_dialled_has_no_proof_for_either(other: str) -> None:
    """It tells each end what that one expects: then the listener's proof is of something else."""
    dialler, listener = ends(listens=OTHERS[other])
    expected = Dialler(TOKEN, replace(DIALLED, **meant(OTHERS[other])), MINE).opening
    proof = listener.hear(expected)
    shown = Listener(TOKEN, LISTENS, THEIRS).opening
    refusal = dialler.hear(shown + proof)
    assert "token is not the job's" in str(dialler.error)
    listener.hear(refusal)
    assert "does not know this job's token" in str(listener.error)
    assert not listener.proved


def meant(other: End) -> dict[str, object]:
    return {"service": other.service, "where": other.where, "whom": other.me}


def test_who_means_anybody_takes_whoever_is_there() -> None:
    dialler, listener = ends(replace(DIALLED, whom=""))
    meet(dialler, listener)
    assert dialler.proved
    assert listener.proved


SAME = [
    ("10.0.0.1", "::ffff:10.0.0.1"),
    ("fe80::1%eth0", "fe80::1%bond7"),
    ("2001:db8::1", "2001:0db8:0:0:0:0:0:1"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_ways_to_write_an_address_are_one(one: str, other: str) -> None:
    dialled = replace(DIALLED, where=Where(one, 7000))
    dialler, listener = ends(dialled, replace(LISTENS, where=Where(other, 7000)))
    meet(dialler, listener)
    assert dialler.proved
    assert listener.proved


def test_the_same_address_on_another_loopback_interface_is_another() -> None:
    here, there = Where("127.0.0.1", 7000, b"a host"), Where("127.0.0.1", 7000, b"another host")
    dialler, listener = ends(replace(DIALLED, where=here), replace(LISTENS, where=there))
    meet(dialler, listener)
    assert "127.0.0.1:7000 is that of another host: somebody" in str(dialler.error)
    assert not listener.proved


def test_whose_an_address_is_counts_on_a_loopback_interface_only() -> None:
    assert Where("10.0.0.1", 1, b"a").same() == Where("10.0.0.1", 1, b"b").same()
    assert Where("::1", 1, b"a").same() != Where("::1", 1, b"b").same()
    assert [is_loopback(a) for a in ("127.3.2.1", "::1", "::ffff:127.0.0.1")] == [True] * 3
    assert [is_loopback(a) for a in ("10.0.0.1", "fe80::1%lo", "::ffff:10.0.0.1")] == [False] * 3


# --- who does not know the token ------------------------------------------------------------------


def test_who_has_another_token_hears_and_proves_nothing() -> None:
    dialler, listener = Dialler(OTHER, DIALLED, MINE), Listener(TOKEN, LISTENS, THEIRS)
    meet(dialler, listener)
    assert "token is not the job's" in str(dialler.error)
    assert "does not know this job's token" in str(listener.error)
    assert OTHER.decode() not in str(dialler.error)
    assert not dialler.proved
    assert not listener.proved


def test_a_listener_that_does_not_prove_itself_gets_no_proof() -> None:
    dialler = Dialler(TOKEN, DIALLED, MINE)
    assert dialler.hear(Listener(OTHER, LISTENS, THEIRS).opening) == b""
    assert dialler.hear(bytes(PROOF_BYTES)) == bytes(PROOF_BYTES)
    assert dialler.error is not None


def test_what_a_dialler_says_is_no_listeners_answer() -> None:
    """Thrown back at it, or at another one."""
    dialler, listener = ends()
    up, _ = said()
    assert not any(dialler.hear(dialler.opening + up[OPENING_BYTES:]).strip(b"\0"))
    assert "token is not the job's" in str(dialler.error)
    listener.hear(listener.opening + up[OPENING_BYTES:])
    assert not listener.proved


def test_a_hello_that_was_heard_before_proves_nothing() -> None:
    up, down = said()
    dialler, listener = Dialler(TOKEN, DIALLED, b"n" * 16), Listener(TOKEN, LISTENS, b"n" * 16)
    dialler.hear(down)
    assert "token is not the job's" in str(dialler.error)
    listener.hear(up)
    assert "does not know this job's token" in str(listener.error)


BITS = [*range(0, 8 * (OPENING_BYTES + PROOF_BYTES), 3)]


def test_a_dialler_takes_nothing_in_which_a_bit_was_changed() -> None:
    _, down = said()
    for bit in BITS:
        dialler = Dialler(TOKEN, DIALLED, MINE)
        dialler.hear(flipped(down, bit))
        assert dialler.error is not None, bit
        assert not dialler.proved, bit


def test_a_listener_takes_nothing_in_which_a_bit_was_changed() -> None:
    up, _ = said()
    for bit in BITS:
        listener = Listener(TOKEN, LISTENS, THEIRS)
        listener.hear(flipped(up, bit))
        assert listener.error is not None, bit
        assert not listener.proved, bit


def flipped(data: bytes, bit: int) -> bytes:
    return bytes(byte ^ (1 << bit % 8) * (at == bit // 8) for at, byte in enumerate(data))


@pytest.mark.parametrize("length", range(0, OPENING_BYTES + PROOF_BYTES, 9))
def test_a_part_of_a_hello_is_none(length: int) -> None:
    up, down = said()
    dialler, listener = ends()
    dialler.hear(down[:length])
    listener.hear(up[:length])
    assert not dialler.proved
    assert not listener.proved
    assert dialler.error is listener.error is None
    assert dialler.missing == listener.missing == OPENING_BYTES + PROOF_BYTES - length


def test_more_than_a_hello_is_none_for_a_dialler() -> None:
    _, down = said()
    dialler = Dialler(TOKEN, DIALLED, MINE)
    dialler.hear(down + b"x")
    assert not dialler.proved


def test_what_follows_a_proof_is_kept_for_who_reads_on() -> None:
    up, _ = said()
    listener = Listener(TOKEN, LISTENS, THEIRS)
    assert listener.hear(up + b"first words")
    assert listener.proved
    assert listener.rest == b"first words"


# --- who speaks otherwise -------------------------------------------------------------------------


def test_another_version_is_named_at_both_ends() -> None:
    up, down = (bytearray(data) for data in said())
    up[MAGIC_BYTES] = down[MAGIC_BYTES] = PROTOCOL + 1
    dialler, listener = ends()
    dialler.hear(bytes(down[:20]))
    listener.hear(bytes(up[:20]))
    speaks = f"speaks protocol {PROTOCOL + 1}; this"
    assert speaks in str(dialler.error)
    assert speaks in str(listener.error)


@pytest.mark.parametrize("data", [bytes(range(48)), b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x"])
def test_what_is_no_hello_is_called_that(data: bytes) -> None:
    """Protocol 3 began with random bytes."""
    dialler, listener = ends()
    assert dialler.hear(data) == listener.hear(data) == b""
    assert "speaks something else, or an older protocol" in str(dialler.error)
    assert "speaks something else, or an older protocol" in str(listener.error)


def test_why_a_connection_ended_is_told_from_what_was_heard() -> None:
    silent, reset = ends()[0], ConnectionResetError("by peer")
    assert isinstance(silent.ended(), ConnectionResetError)
    assert silent.ended(reset) is reset
    refused = ends()[0]
    assert refused.hear(TLS_ONLY) == b""
    assert refused.error is None
    assert "speaks TLS" in str(refused.ended(reset))
