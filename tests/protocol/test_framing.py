"""Frames come out as they went in, however the stream is cut; a hostile length is refused early."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmover.errors import ProtocolError
from trainmover.protocol.framing import (
    FRAME_BYTES_MAX,
    HEADER,
    FrameReader,
    frame,
    frame_length,
)


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(1, 50))
def test_any_cut_of_the_stream_gives_the_same_frames(payloads: list[bytes], cut: int) -> None:
    stream = b"".join(frame(payload) for payload in payloads)
    reader, received = FrameReader(), []
    for start in range(0, len(stream), cut):
        received += reader.feed(stream[start : start + cut])
    assert received == payloads


def test_a_frame_is_length_and_payload() -> None:
    assert frame(b"ab") == b"\0\0\0\2ab"
    assert frame(b"") == b"\0\0\0\0"
    assert frame_length(b"\0\0\1\2") == 258


def test_an_empty_frame_is_a_frame() -> None:
    assert FrameReader().feed(frame(b"") * 2) == [b"", b""]


def test_the_limit_itself_is_allowed() -> None:
    assert frame(b"abc", bytes_max=3)[4:] == b"abc"
    assert frame_length(HEADER.pack(FRAME_BYTES_MAX)) == FRAME_BYTES_MAX
    assert FrameReader(bytes_max=3).feed(frame(b"abc")) == [b"abc"]


def test_a_payload_over_the_limit_is_not_framed() -> None:
    with pytest.raises(ProtocolError, match="at most 3 are allowed"):
        frame(b"abcd", bytes_max=3)
    with pytest.raises(ProtocolError):
        frame_length(HEADER.pack(FRAME_BYTES_MAX + 1))


def test_an_oversized_header_is_refused_before_its_payload_arrives() -> None:
    reader = FrameReader(bytes_max=100)
    with pytest.raises(ProtocolError, match="A frame of 101 bytes was announced"):
        reader.feed(HEADER.pack(101))


def test_what_is_not_ours_looks_like_an_oversized_frame() -> None:
    with pytest.raises(ProtocolError, match="Something that is not trainmover"):
        FrameReader().feed(b"GET / HTTP/1.1\r\n")


def test_the_error_comes_after_the_frames_before_it_have_been_fed() -> None:
    reader = FrameReader(bytes_max=100)
    assert reader.feed(frame(b"good") + b"\xff") == [b"good"]
    with pytest.raises(ProtocolError):
        reader.feed(b"\xff\xff\xff")
