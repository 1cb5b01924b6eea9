"""Links that are encrypted: the same sums; what was changed on the way is never taken."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from native_calls import Call, perform
from native_outcomes import try_prepare, until_broken
from native_raw_peer import LOWEST, RawLink, card, dial, flipped, greet, is_closed, next_frame
from native_team import Formation, Rank, Team, enter, open_seat

from trainmover import _native
from trainmover.tls import libcrypto

CHECK = [
    Call("all_reduce", count=1_000_000, seed=9),
    Call("all_reduce", count=2, seed=3),
    Call("all_to_all", "u8", count=70_000),
    Call("broadcast", "bf16", count=99_999),
    Call("barrier"),
]


@pytest.fixture
def world() -> Iterator[Formation]:
    """On three hosts, two seats on one of them."""
    team = Team("aabc", libcrypto.path())
    formation = Formation(team, "world")
    formation.advance()
    yield formation
    team.close()


@pytest.fixture
def lone() -> Iterator[Team]:
    team = Team("a", libcrypto.path())
    yield team
    team.close()


def where(rank: Rank) -> tuple[str, int]:
    return rank.endpoint.address, rank.endpoint.incarnation


def test_sums_are_the_same_and_members_change(world: Formation) -> None:
    world.all(perform, CHECK)
    world.refill(3)
    world.all(perform, CHECK)
    world.refill(0)
    world.all(perform, CHECK)


def ask_for_a_call(rank: Rank) -> None:
    from native_calls import Call

    until_broken(rank, "pair", Call("all_reduce", count=50_000))


@pytest.fixture
def raw(lone: Team) -> Iterator[RawLink]:
    """An encrypted link to the only seat, from what has the other seat of the group "pair"."""
    x25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.x25519")
    honest = lone.players[0]
    address, incarnation = honest.ask(where)
    with dial(address) as link:
        link.pair = x25519.X25519PrivateKey.generate()
        assert greet(link, lone.token, incarnation, source=LOWEST) == (1, "")
        cards = [honest.ask(open_seat, "pair", 0, 2), card(LOWEST, "nowhere", "127.0.0.1:1")]
        honest.ask(enter, "pair", 1, cards)
        yield link


def place(said: dict[str, int]) -> dict[str, int]:
    return {name: said[name] for name in ("group", "epoch", "low", "high")}


def test_another_implementation_reads_and_writes_it(lone: Team, raw: RawLink) -> None:
    """X25519, HMAC and AES-GCM of a library, put together by another hand."""
    honest = lone.players[0]
    honest.start(perform, "pair", [Call("barrier"), Call("barrier")])
    for _ in range(2):
        said, payload = next_frame(raw)
        raw.sendall(raw.frame("data", payload, **place(said)))
    honest.finish()


LIES: dict[str, Callable[[bytes], bytes]] = {
    "payload": lambda said: flipped(said, 70),
    "seal": lambda said: flipped(said, -1),
    "header": lambda said: flipped(said, 33),
    "plain": lambda said: said[:64] + bytes(len(said) - 64),
    "cut": lambda said: said[:-1],
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("size", [4, 200_000 - 64])
def test_what_was_changed_on_the_way_is_no_sum(
    lone: Team, raw: RawLink, lie: str, size: int
) -> None:
    honest = lone.players[0]
    honest.start(until_broken, "pair", Call("all_reduce", count=50_000))
    said, payload = next_frame(raw)
    raw.sendall(LIES[lie](raw.frame("data", payload[:size], **place(said))))
    raw.shutdown(1)
    ended: Any = honest.finish()
    assert ended.kind == "PeerLost", ended
    assert is_closed(raw)


def test_who_does_not_encrypt_is_told(lone: Team) -> None:
    """Both ways: each side names the flag."""
    plain = Team("b")
    plain.token = lone.token
    plain.replace(0)
    try:
        (theirs,), (ours,) = plain.players, lone.players
        cards = [ours.ask(open_seat, "pair", 0, 2), theirs.ask(open_seat, "pair", 1, 2)]
        for player in (ours, theirs):
            player.start(try_prepare, "pair", 1, cards, 3.0)
        told = [ours.finish(), theirs.finish()]
    finally:
        plain.close()
    assert any("--tls" in one.text for one in told), told
    assert {one.kind for one in told} <= {"Refused", "TimedOut"}


def test_what_is_no_libcrypto_is_refused() -> None:
    for path, word in (("/nowhere/libcrypto.so.3", "no libcrypto"), ("libc.so.6", "EVP_")):
        with pytest.raises(_native.Refused, match=word):
            _native.Endpoint(b"t" * 32, "here", libcrypto=path)
