"""What comes over a proved connection is what was said, in that order, or nothing."""

import hmac

import pytest

from trainmover.errors import ProtocolError
from trainmover.protocol.sealed import HEAD_BYTES, MARK_BYTES, Marks, SealedReader, Session

ONE, OTHER = b"1" * 32, b"2" * 32
SAID = [b"first", b"", b"third" * 10]


def pair() -> tuple[Session, Session]:
    return Session(ONE, OTHER), Session(OTHER, ONE)


def heard(data: bytes, *, at_once: int = 1000) -> list[bytes]:
    """Of what the first session has said, by the second."""
    reader = SealedReader(pair()[1])
    pieces = [data[at : at + at_once] for at in range(0, len(data), at_once)]
    return [payload for piece in pieces for payload in reader.feed(piece)]


def frames() -> list[bytes]:
    says = pair()[0]
    return [says.seal(payload) for payload in SAID]


@pytest.mark.parametrize("at_once", [1, 3, HEAD_BYTES, 1000])
def test_frames_come_as_they_were_said(at_once: int) -> None:
    assert heard(b"".join(frames()), at_once=at_once) == SAID


def test_a_bit_that_was_changed_is_noticed() -> None:
    said = b"".join(frames())
    for bit in range(0, 8 * len(said), 5):
        data = bytearray(said)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError, match="not what the other end has said"):
            heard(bytes(data))


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (0, 2), (2,), (0, 1, 0)])
def test_a_frame_that_is_not_the_next_one_is_noticed(order: tuple[int, ...]) -> None:
    """In another order, twice, with one left out."""
    said = frames()
    with pytest.raises(ProtocolError):
        heard(b"".join(said[number] for number in order))


def test_what_one_has_said_oneself_is_not_taken_for_the_others() -> None:
    says = pair()[0]
    with pytest.raises(ProtocolError):
        SealedReader(says).feed(pair()[0].seal(b"x"))


def test_a_length_that_was_changed_is_noticed_before_anything_is_waited_for() -> None:
    data = bytearray(frames()[0])
    data[2] ^= 1
    with pytest.raises(ProtocolError, match="not what"):
        heard(bytes(data[:HEAD_BYTES]))


def test_what_is_too_long_is_neither_said_nor_read() -> None:
    says, hears = pair()
    with pytest.raises(ProtocolError, match="6 bytes was announced; at most 5"):
        says.seal(b"123456", bytes_max=5)
    with pytest.raises(ProtocolError, match="6 bytes was announced; at most 5"):
        SealedReader(hears, bytes_max=5).feed(says.seal(b"123456")[:HEAD_BYTES])


def test_a_mark_covers_all_parts_together() -> None:
    says, hears = pair()
    mark = says.says.next(b"ab", memoryview(b"c"))
    assert len(mark) == MARK_BYTES
    hears.hears.check(memoryview(mark), b"abc")
    with pytest.raises(ProtocolError):
        hears.hears.check(mark, b"abc")


@pytest.mark.parametrize("key", [b"", b"k" * 32, b"k" * 64, b"k" * 65, b"k" * 200])
def test_a_mark_is_the_hmac_of_its_number_and_what_is_said(key: bytes) -> None:
    marks = Marks(key)
    for number, said in enumerate([b"", b"a", b"a" * 100_000]):
        whole = hmac.digest(key, number.to_bytes(8) + said, "sha256")
        assert marks.next(said) == whole[:MARK_BYTES]
