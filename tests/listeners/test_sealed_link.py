"""A proved connection says the same bytes whoever sends them, and ends in the same way."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from trainmover.communicators import native_is_built
from trainmover.errors import ProtocolError
from trainmover.listeners import sealed_link
from trainmover.listeners.sealed_link import HandedOver, PlainLink, SealedLink
from trainmover.protocol.framing import FRAME_BYTES_MAX
from trainmover.protocol.sealed import HEAD_BYTES, MARK_BYTES, Session

HERE, THERE = b"h" * 32, b"t" * 32
SAID = [b"", b"x", b"a record" * 500, bytes(range(256)) * 4096, b"last"]
KINDS = [PlainLink, *([HandedOver] if native_is_built() else [])]


class Ends:
    """One end as the kind has it; of the other its socket, and what is said there."""

    def __init__(self, kind: Callable[[socket.socket, Session], SealedLink]) -> None:
        ours, self.socket = socket.socketpair()
        session, self.session = Session(HERE, THERE), Session(THERE, HERE)
        for one, other in ((session, self.session), (self.session, session)):
            other.hears.check(
                one.says.next(b"the hello"), b"the hello"
            )  # Some marks are made already.
        self.link = kind(ours, session)

    def hear_all(self, count: int) -> list[bytes]:
        """So many frames, however many calls that takes."""
        frames: list[bytes] = []
        while len(frames) < count:
            frames += self.link.hear()
        return frames

    def receive(self) -> bytes:
        """The payload of a frame, at the other end."""
        head = self.socket.recv(HEAD_BYTES, socket.MSG_WAITALL)
        rest = self.session.length(head)
        return bytes(self.session.opened(self.socket.recv(rest, socket.MSG_WAITALL)))


@pytest.fixture(params=KINDS)
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    ends = Ends(request.param)
    yield ends
    ends.link.close()
    ends.socket.close()


def test_what_is_said_comes_as_it_was_said_both_ways(ends: Ends) -> None:
    heard: list[bytes] = []
    other = threading.Thread(target=lambda: heard.extend(ends.receive() for _ in SAID))
    other.start()
    for payload in SAID:
        ends.link.say(payload)
    other.join()
    assert heard == SAID
    data = b"".join(map(ends.session.seal, SAID))
    sender = threading.Thread(target=ends.socket.sendall, args=(data,))
    sender.start()
    assert ends.hear_all(len(SAID)) == SAID
    sender.join()


@pytest.mark.parametrize("at_once", [1, HEAD_BYTES, 33])
def test_a_frame_may_come_in_pieces(ends: Ends, at_once: int) -> None:
    data = ends.session.seal(b"one") + ends.session.seal(b"") + ends.session.seal(b"three")
    frames: list[bytes] = []
    for at in range(0, len(data), at_once):
        ends.socket.sendall(data[at : at + at_once])
        frames += ends.link.hear()
    while len(frames) < 3:
        frames += ends.link.hear()
    assert frames == [b"one", b"", b"three"]


def test_nothing_that_comes_is_no_end(ends: Ends) -> None:
    begun = time.monotonic()
    assert ends.link.hear() == []
    assert time.monotonic() - begun < 5
    ends.socket.sendall(ends.session.seal(b"now"))
    assert ends.hear_all(1) == [b"now"]


FRAME_BYTES = HEAD_BYTES + len(b"word") + MARK_BYTES


@pytest.mark.parametrize("byte", range(FRAME_BYTES))
def test_a_byte_that_was_changed_is_noticed(ends: Ends, byte: int) -> None:
    data = bytearray(ends.session.seal(b"word"))
    data[byte] ^= 1
    ends.socket.sendall(data)
    with pytest.raises(ProtocolError, match="not what the other end has said"):
        ends.hear_all(1)


def test_a_frame_that_comes_twice_is_noticed(ends: Ends) -> None:
    frame = ends.session.seal(b"word")
    ends.socket.sendall(frame + frame)
    with pytest.raises(ProtocolError):
        ends.hear_all(2)


def test_a_frame_that_is_too_long_is_refused_by_its_length_alone(ends: Ends) -> None:
    frame = ends.session.seal(bytes(FRAME_BYTES_MAX + 1), bytes_max=FRAME_BYTES_MAX + 1)
    ends.socket.sendall(frame[:HEAD_BYTES])
    with pytest.raises(ProtocolError, match=f"{FRAME_BYTES_MAX + 1} bytes"):
        ends.hear_all(1)
    with pytest.raises(ProtocolError, match=f"{FRAME_BYTES_MAX + 1} bytes"):
        ends.link.say(bytes(FRAME_BYTES_MAX + 1))


def test_the_other_ends_end_is_heard_behind_what_it_said(ends: Ends) -> None:
    ends.socket.sendall(ends.session.seal(b"last"))
    ends.socket.close()
    assert ends.hear_all(1) == [b"last"]
    with pytest.raises((EOFError, ConnectionResetError)):
        ends.hear_all(1)


def test_what_cannot_be_sent_is_told_to_who_says_or_hears_next(ends: Ends) -> None:
    ends.socket.close()

    def say_for_ever() -> None:
        while True:
            ends.link.say(b"word")

    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        say_for_ever()
    with pytest.raises((EOFError, OSError)):
        ends.hear_all(1)


def test_close_wakes_who_hears(ends: Ends) -> None:
    asked = threading.Event()
    ended: list[BaseException] = []

    def hear() -> None:
        try:
            while True:
                asked.set()
                ends.link.hear()
        except (EOFError, OSError, ValueError) as error:
            ended.append(error)

    thread = threading.Thread(target=hear)
    thread.start()
    assert asked.wait(30)
    ends.link.close()
    thread.join(30)
    assert ended


def test_who_does_not_read_holds_up_nobody_who_hands_over() -> None:
    """More than any socket's buffer takes; and a close does not wait for it either."""
    if HandedOver not in KINDS:
        pytest.skip("the extension was not built")
    ends = Ends(HandedOver)
    for _ in range(8):
        ends.link.say(bytes(FRAME_BYTES_MAX))
    ends.link.close()
    ends.socket.close()


def test_a_forked_child_neither_holds_nor_uses_it() -> None:
    if HandedOver not in KINDS:
        pytest.skip("the extension was not built")
    ends = Ends(HandedOver)
    ends.link.say(b"before")
    assert ends.receive() == b"before"
    child = os.fork()
    if child == 0:
        try:
            ends.link.say(b"from the child")
        except OSError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ends.link.say(b"behind")
    assert ends.receive() == b"behind"
    ends.link.close()
    ends.socket.close()


def test_only_a_plain_socket_is_handed_over() -> None:
    one, other = socket.socketpair()
    with other:
        session = Session(HERE, THERE)
        kind = HandedOver if native_is_built() else PlainLink
        assert type(sealed_link.over(one, session, by_thread=True)) is kind
        assert type(sealed_link.over(one, session, by_thread=False)) is PlainLink

        class Secure(socket.socket):
            pass

        secure = Secure(fileno=one.detach())
        assert type(sealed_link.over(secure, session, by_thread=True)) is PlainLink
        secure.close()
