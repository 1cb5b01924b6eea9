"""Strangers and broken peers: their own link is closed with a reason, everybody else goes on."""

import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from native_calls import PROPERTY, Call, perform
from native_outcomes import try_prepare
from native_raw_peer import (
    GREETING,
    HELLO_MAGIC,
    KINDS,
    LONGEST,
    PAYLOAD_MAX,
    VERSION,
    RawLink,
    dial,
    flipped,
    greet,
    is_closed,
    joined,
    signed,
    with_byte,
    words,
)
from native_team import Formation, Rank, Team
from native_topologies import on

from trainmover import _native

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.bin"))
CHECK = [Call("all_reduce", count=100_000, seed=9), Call("all_to_all", "u8"), Call("barrier")]
two = pytest.mark.parametrize("team", on("2-shm", "2-tcp"), indirect=True)


def where(rank: Rank) -> tuple[str, int]:
    return rank.endpoint.address, rank.endpoint.incarnation


def stats(rank: Rank) -> dict[str, Any]:
    return dict(rank.endpoint.stats())


def await_stats(world: Formation, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The figures of seat 0, once they are as they must become."""
    world.team.until(lambda: true(world.players[0].ask(stats)), "figures")
    return dict(world.players[0].ask(stats))


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@two
def test_a_wrong_token_is_refused(world: Formation, sockets: ExitStack) -> None:
    address, incarnation = world.players[0].ask(where)
    link = sockets.enter_context(dial(address))
    accepted, reason = greet(link, b"not the token of this job", incarnation)
    assert (accepted, "token" in reason) == (0, True)
    assert is_closed(link)
    assert await_stats(world, lambda now: now["links_refused"] == 1)["links_opened"] == 1
    world.all(perform, CHECK)


def test_a_process_of_another_job_cannot_take_a_seat(
    make_team: Callable[[Any], Team],
) -> None:
    ours, theirs = make_team("ab"), make_team("ab")
    mine, stranger = Formation(ours, "world"), Formation(theirs, "world")
    cards = [mine.cards()[0], stranger.cards()[1]]
    pair = [ours.players[0], theirs.players[1]]
    for player in pair:
        player.start(try_prepare, "world", 1, cards, 1.0)
    kinds = [player.finish().kind for player in pair]
    assert "Refused" in kinds
    assert set(kinds) <= {"Refused", "TimedOut"}
    mine.epoch = 1
    mine.advance()
    mine.all(perform, CHECK)


WRONG = [
    {"version": VERSION + 1},
    {"magic": HELLO_MAGIC ^ 1},
    {"source": 0},
]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("team", on("2-tcp"), indirect=True)
def test_a_hello_that_cannot_be_right_is_refused(
    world: Formation, sockets: ExitStack, wrong: dict[str, int]
) -> None:
    address, incarnation = world.players[0].ask(where)
    link = sockets.enter_context(dial(address))
    assert greet(link, world.team.token, incarnation, **wrong)[0] != 1
    assert is_closed(link)
    world.all(perform, CHECK)


@pytest.mark.parametrize("team", on("2-tcp"), indirect=True)
def test_a_hello_for_another_process_is_refused(world: Formation, sockets: ExitStack) -> None:
    address, incarnation = world.players[0].ask(where)
    link = sockets.enter_context(dial(address))
    accepted, reason = greet(link, world.team.token, incarnation ^ 1)
    assert (accepted, "another process" in reason) == (0, True)
    link = sockets.enter_context(dial(address))
    assert greet(link, world.team.token, incarnation, source=incarnation)[0] == 0
    world.all(perform, CHECK)


@two
def test_noise_and_half_hellos_do_not_disturb(world: Formation, sockets: ExitStack) -> None:
    address, incarnation = world.players[0].ask(where)
    greeting = GREETING.pack(HELLO_MAGIC, VERSION, 0, 7, incarnation, bytes(32))
    noise = [b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), b"\xff" * 100_000]
    for said in [*noise, greeting[:1], greeting[:55], greeting, greeting + bytes(31)]:
        link = sockets.enter_context(dial(address))
        try:
            link.sendall(said)
        except (ConnectionResetError, BrokenPipeError):
            continue
    world.all(perform, CHECK)
    for said in (b"GET / HTTP/1.1\r\n\r\n" * 9, bytes(200), b"\xff" * 400):
        link = sockets.enter_context(dial(address))
        link.sendall(said)
        assert is_closed(link)
    world.all(perform, CHECK)


@two
def test_a_crowd_at_the_door_does_not_keep_members_out(
    world: Formation, sockets: ExitStack
) -> None:
    address, _ = world.players[0].ask(where)
    for _ in range(600):
        sockets.enter_context(dial(address))
    world.all(perform, CHECK)
    world.refill(1)
    world.all(perform, CHECK)


HOSTILE: dict[str, Callable[[RawLink], bytes]] = {
    "no code": lambda link: link.header("data")[:56] + bytes(8),
    "wrong code": lambda link: flipped(link.header("data"), -1),
    "twice": lambda link: link.header("credit") * 2,
    "one left out": lambda link: (link.header("credit") + link.header("credit"))[64:],
    "of the other direction": lambda link: signed(words("credit"), link.key_in, 0),
    "longer than signed": lambda link: with_byte(link.header("data"), 4, 1) + b"\0",
    "unknown kind": lambda link: link.header(99),
    "kind 0": lambda link: link.header(0),
    "oversize data": lambda link: link.header("data", length=PAYLOAD_MAX + 1),
    "huge letter": lambda link: link.header("letter", length=(1 << 32) - 1),
    "credit with payload": lambda link: link.header("credit", length=8) + bytes(8),
    "long reason": lambda link: link.header("broken", length=513) + bytes(513),
    "noise": lambda _: random.Random(4).randbytes(4096),
    "zeros": lambda _: bytes(64),
}


@pytest.mark.parametrize("say", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("team", on("2-tcp"), indirect=True)
def test_an_impossible_frame_ends_that_link_only(
    world: Formation, sockets: ExitStack, say: Callable[[RawLink], bytes]
) -> None:
    address, incarnation = world.players[0].ask(where)
    link = sockets.enter_context(joined(address, world.team.token, incarnation))
    await_stats(world, lambda now: now["links_opened"] == 2)
    link.sendall(say(link))
    assert is_closed(link)
    now = await_stats(world, lambda now: now["links_closed"] >= 1)
    assert now["last_close_reason"]
    assert now["links_opened"] == 2
    world.all(perform, CHECK)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("team", on("2-tcp"), indirect=True)
def test_frames_for_groups_that_are_not_here_do_no_harm(
    world: Formation, sockets: ExitStack, kind: str
) -> None:
    address, incarnation = world.players[0].ask(where)
    link = sockets.enter_context(joined(address, world.team.token, incarnation))
    await_stats(world, lambda now: now["links_opened"] == 2)
    load = bytes(min(100, LONGEST.get(kind, 0)))
    for turn in range(50):
        wild = {"a": turn * 0x9E3779B97F4A7C15 % (1 << 64), "b": (1 << 64) - 1 - turn}
        try:
            link.sendall(link.header(kind, turn, turn % 3, len(load), **wild) + load)
        except (ConnectionResetError, BrokenPipeError):
            break
    world.all(perform, CHECK)
    world.refill(1)
    world.all(perform, CHECK)


@pytest.mark.parametrize("team", on("2-tcp"), indirect=True)
def test_a_frame_that_never_ends_blocks_nobody(world: Formation, sockets: ExitStack) -> None:
    address, incarnation = world.players[0].ask(where)
    for whole in (False, True):
        link = sockets.enter_context(joined(address, world.team.token, incarnation))
        head = link.header("letter", 5, 1, 1000, b=1000)
        link.sendall(head + bytes(10) if whole else head[:17])
    world.all(perform, CHECK)
    world.refill(1)
    world.all(perform, CHECK)


KEY = bytes(range(16))


def parsed(head: bytes, number: int = 0) -> str:
    return _native.parse_header(head, KEY, number)


@pytest.mark.parametrize("said", CORPUS, ids=lambda path: path.stem)
def test_the_corpus_of_headers(said: Path) -> None:
    """A file that is named good is a header; every other one is refused with a reason."""
    assert (parsed(said.read_bytes()) == "") == said.stem.startswith("good")


@given(st.binary(max_size=200))
@example(b"")
@settings(PROPERTY, max_examples=500)
def test_no_bytes_harm_the_parser(said: bytes) -> None:
    assert isinstance(parsed(said), str)


@given(st.binary(min_size=56, max_size=56), st.integers(0, 13), st.integers(0, 1 << 19))
@settings(PROPERTY, max_examples=500)
def test_headers_with_a_right_code(body: bytes, kind: int, length: int) -> None:
    head = bytearray(body)
    struct.pack_into("<II", head, 0, kind, length)
    reason = parsed(signed(bytes(head), KEY, 0))
    known = 1 <= kind <= len(KINDS)
    assert (reason == "") == (known and length <= LONGEST.get(KINDS[kind - 1], 0)), reason


@given(st.integers(0, 63), st.integers(1, 255), st.integers(0, (1 << 63) - 1))
@settings(PROPERTY, max_examples=300)
def test_a_flipped_byte_or_another_place_is_noticed(at: int, flip: int, place: int) -> None:
    head = words("data", group=77, epoch=3, length=1000, a=5, b=6, low=7, high=8)
    good = bytearray(signed(head, KEY, place))
    assert parsed(bytes(good), place) == ""
    assert parsed(bytes(good), place + 1) != ""
    assert _native.parse_header(bytes(good), bytes(16), place) != ""
    good[at] ^= flip
    assert parsed(bytes(good), place) != ""


@pytest.mark.parametrize("team", on("2-shm"), indirect=True)
def test_strangers_at_the_local_door_are_refused(world: Formation, sockets: ExitStack) -> None:
    _, incarnation = world.players[0].ask(where)
    path = world.players[0].ask(local_path)
    link = sockets.enter_context(dial(path))
    assert greet(link, b"wrong", incarnation)[0] == 0
    assert is_closed(link)
    link = sockets.enter_context(dial(path))
    assert greet(link, world.team.token, incarnation) == (1, "")
    link.sendall(b"\0")  # no memory is passed
    assert is_closed(link)
    link = sockets.enter_context(dial(path))
    link.sendall(os.urandom(300))
    assert is_closed(link)
    assert await_stats(world, lambda now: now["links_refused"] == 3)["links_opened"] == 1
    world.all(perform, CHECK)


def local_path(rank: Rank) -> str:
    path: str = rank.endpoint.path
    return path
