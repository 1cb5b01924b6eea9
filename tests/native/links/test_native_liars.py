"""A member that has a seat and breaks the rules: its group ends with a reason, no other does."""

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from native_calls import Call, perform
from native_outcomes import until_broken
from native_raw_peer import (
    LOWEST,
    PATIENCE_S,
    RawLink,
    card,
    dial,
    flipped,
    greet,
    next_frame,
    with_byte,
)
from native_team import Formation, Rank, Team, enter, open_seat
from native_topologies import on

CHECK = [Call("all_reduce", count=100_000, seed=9), Call("all_to_all", "u8"), Call("barrier")]
Place = dict[str, int]  # group, epoch and call as the honest seat names them


@dataclass(frozen=True)
class Liar:
    """A link to an honest seat, and what that one said last."""

    link: RawLink
    at: Place

    def frame(self, kind: str, length: int = 0, **more: int) -> bytes:
        """For the honest seat's group, epoch and call, but for what `more` says."""
        words = {name: self.at[name] for name in ("group", "epoch", "low", "high")} | more
        return self.link.header(kind, length=length, **words) + bytes(length)

    def frames(self, times: int, kind: str, length: int = 0, **more: int) -> bytes:
        return b"".join(self.frame(kind, length, **more) for _ in range(times))


LIES: dict[str, tuple[set[str], Callable[[Liar], bytes]]] = {
    "another call": (
        {"OrderMismatch", "PeerLost"},
        lambda liar: liar.frame("data", 8, low=8, high=77),
    ),
    "a call that is none": (
        {"OrderMismatch", "PeerLost"},
        lambda liar: liar.frame("data", 8, low=(1 << 64) - 1, high=(1 << 64) - 1),
    ),
    "credit for nothing": ({"PeerLost"}, lambda liar: liar.frame("credit", a=1 << 60)),
    "a body not asked for": ({"PeerLost"}, lambda liar: liar.frame("body", 100, a=5, b=0)),
    "a wish for nothing": ({"PeerLost"}, lambda liar: liar.frame("clear", a=99)),
    "reading nothing": ({"PeerLost"}, lambda liar: liar.frame("read", a=1 << 40)),
    "half a letter": ({"PeerLost"}, lambda liar: liar.frame("letter", 10, a=1, b=1000)),
    "a wrong code": ({"PeerLost"}, lambda liar: flipped(liar.frame("data"), -1)),
    "a frame twice": ({"PeerLost"}, lambda liar: liar.frame("waiting", a=1) * 2),
    "a frame left out": ({"PeerLost"}, lambda liar: liar.frames(2, "waiting", a=1)[64:]),
    "another length": ({"PeerLost"}, lambda liar: with_byte(liar.frame("data", 8), 4, 7)),
    "another epoch's code": ({"PeerLost"}, lambda liar: with_byte(liar.frame("data", 8), 16, 99)),
    "a huge frame": ({"PeerLost"}, lambda liar: liar.frame("data", (256 << 10) + 1)),
    "no frame": ({"PeerLost"}, lambda _: b"\x13" * 640),
    "noise for a reason": (
        {"PeerLost"},
        lambda liar: liar.frame("broken", 200)[:64] + bytes(range(56, 256)),
    ),
    "giving up": ({"PeerLost"}, lambda liar: liar.frame("broken")),
    "another owner": ({"Refused", "PeerLost"}, lambda liar: liar.frame("replaced", epoch=9)),
    "half a frame": ({"PeerLost"}, lambda liar: liar.frame("data", 1000)[:700]),
    "an old epoch": ({"PeerLost"}, lambda liar: liar.frames(30, "data", 900, epoch=0)),
    "another epoch": (
        {"PeerLost"},
        lambda liar: liar.frames(40, "data", 256 << 10, epoch=5),
    ),
    "leaving": ({"PeerLost"}, lambda liar: liar.frame("leaving")),
    "a farewell": ({"PeerLost"}, lambda liar: liar.frame("farewell")),
    "waiting elsewhere": (
        {"OrderMismatch", "PeerLost"},
        lambda liar: liar.frame("waiting", a=1, low=8, high=1),
    ),
}


def where(rank: Rank) -> tuple[str, int]:
    return rank.endpoint.address, rank.endpoint.incarnation


def drop(rank: Rank, name: str) -> None:
    rank.groups.pop(name).close()


@pytest.fixture
def liar(world: Formation) -> Iterator[RawLink]:
    """A link to seat 0 of the world, from a process that has seat 1 of the group "pair"."""
    honest = world.players[0]
    address, incarnation = honest.ask(where)
    link = dial(address)
    link.settimeout(PATIENCE_S)
    assert greet(link, world.team.token, incarnation, source=LOWEST) == (1, "")
    cards = [honest.ask(open_seat, "pair", 0, 2), card(LOWEST, "nowhere", "127.0.0.1:1")]
    honest.ask(enter, "pair", 1, cards)
    yield link
    link.close()


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("team", on("2-tcp", "2-shm"), indirect=True)
def test_a_lie_ends_the_group_it_was_told_in(world: Formation, liar: RawLink, lie: str) -> None:
    honest = world.players[0]
    expected, say = LIES[lie]
    honest.start(until_broken, "pair", Call("all_reduce", count=50_000))
    at, _ = next_frame(liar)
    tell_and_hang_up(liar, say(Liar(liar, at)))
    ended: Any = honest.finish()
    assert ended.kind in expected, ended
    assert "seat 1" in ended.text
    world.all(perform, CHECK)
    honest.ask(drop, "pair")
    world.advance()
    world.all(perform, CHECK)


def tell_and_hang_up(link: RawLink, said: bytes) -> None:
    """Say it all, unless the other side hangs up first; then wait until it has."""
    with suppress(ConnectionResetError, BrokenPipeError):
        if say_while_heard(link, said):
            with suppress(OSError):  # It may have hung up since.
                link.shutdown(socket.SHUT_WR)
        while link.recv(1 << 16):
            pass


def say_while_heard(link: RawLink, said: bytes) -> bool:
    """False: the other side has hung up before all was said."""
    left = memoryview(said)
    while left:
        readable, writable, _ = select.select([link], [link], [], PATIENCE_S)
        assert readable or writable, "the other side neither reads nor hangs up"
        if readable and not link.recv(1 << 16):
            return False
        if writable:
            left = left[link.send(left, socket.MSG_DONTWAIT) :]
    return True


@pytest.mark.parametrize("team", on("2-tcp"), indirect=True)
def test_a_flood_of_letters_is_held_back(world: Formation, liar: RawLink) -> None:
    """Small messages that nobody asks for: what an honest sender may send is kept, no more."""
    honest = world.players[0]
    before = honest.ask(peak_mib_from_here)
    honest.start(until_broken, "pair", Call("all_reduce", count=50_000))
    at, _ = next_frame(liar)
    letters = Liar(liar, at).frames(8000, "letter", 16 << 10, b=16 << 10)
    tell_and_hang_up(liar, letters)  # 125 MiB
    assert honest.finish().kind == "PeerLost"
    assert honest.ask(peak_mib) - before < 50
    world.all(perform, CHECK)


def peak_mib_from_here(rank: Rank) -> int:
    """Forget the most memory that this process ever held; what earlier tests left in it stays."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mib(rank)


def peak_mib(rank: Rank) -> int:
    told = Path("/proc/self/status").read_text()
    return int(told.split("VmHWM:")[1].split()[0]) // 1024


def test_the_liar_can_be_honest(make_team: Callable[[Any], Team]) -> None:
    """The other tests would mean nothing if this one's card, hello and frames were wrong."""
    honest = make_team("a").players[0]
    address, incarnation = honest.ask(where)
    with dial(address) as link:
        token = make_token(honest)
        assert greet(link, token, incarnation, source=LOWEST) == (1, "")
        cards = [honest.ask(open_seat, "pair", 0, 2), card(LOWEST, "nowhere", "127.0.0.1:1")]
        honest.ask(enter, "pair", 1, cards)
        honest.start(perform, "pair", [Call("barrier")])
        at, load = next_frame(link)
        link.sendall(Liar(link, at).frame("data", len(load)))
        honest.finish()


def make_token(player: Any) -> bytes:
    token: bytes = player.ask(token_of)
    return token


def token_of(rank: Rank) -> bytes:
    return rank.token
