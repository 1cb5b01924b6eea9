"""What is on its way while an epoch begins: a part of a frame is there, the rest comes later."""

from collections.abc import Iterator
from typing import Any

import pytest
from native_data import blank, buffer, code, values
from native_raw_peer import LOWEST, RawLink, card, dial, greet, next_frame
from native_team import Formation, Rank, enter, open_seat, prepare, switch
from native_topologies import on

COUNT = 30_000
HALF = 64 + 50_000


def talk(rank: Rank, name: str, kind: str, count: int) -> bytes:
    """What the other seat has said, in a call or in a message."""
    group = rank.groups[name]
    mine, own, theirs = buffer(values("f32", count, 1)), blank("f32", count), blank("f32", count)
    if kind == "data":
        outputs = [own.pointer, theirs.pointer]
        group.all_gather(mine.pointer, outputs, count, code("f32"), False)
    else:
        group.send(mine.pointer, count, code("f32"), 1, 3)
        assert group.recv(theirs.pointer, count, code("f32"), 1, 3).wait(30)
    return bytes(theirs.tensor.numpy().tobytes())


def received(rank: Rank) -> int:
    return max(int(link["received"]) for link in rank.endpoint.links() if link["peer"] == LOWEST)


@pytest.fixture
def raw(world: Formation) -> Iterator[RawLink]:
    honest = world.players[0]
    address, incarnation = honest.ask(where)
    with dial(address) as link:
        assert greet(link, world.team.token, incarnation, source=LOWEST) == (1, "")
        yield link


def where(rank: Rank) -> tuple[str, int]:
    return rank.endpoint.address, rank.endpoint.incarnation


@pytest.mark.parametrize("kind", ["data", "letter"])
@pytest.mark.parametrize("team", on("2-tcp"), indirect=True)
def test_a_frame_may_come_half_before_its_epoch_and_half_after(
    world: Formation, raw: RawLink, kind: str
) -> None:
    honest = world.players[0]

    def cards() -> list[bytes]:
        return [honest.ask(open_seat, "pair", 0, 2), card(LOWEST, "nowhere", "127.0.0.1:1")]

    def said(epoch: int, text: bytes) -> bytes:
        words = {"group": at["group"], "low": at["low"], "high": len(text) // 4, "epoch": epoch}
        return raw.frame(kind, text, **words, **({"b": len(text)} if kind == "letter" else {}))

    def until_received(more: int) -> None:
        world.team.until(lambda: honest.ask(received) >= more, "the endpoint reads")

    honest.ask(enter, "pair", 1, cards())
    honest.start(talk, "pair", kind, COUNT)
    at = next_kind(raw, kind)
    before = values("f32", COUNT, 5).numpy().tobytes()
    raw.sendall(said(1, before))
    assert honest.finish() == before
    honest.ask(prepare, "pair", 2, cards())
    first = values("f32", COUNT, 6).numpy().tobytes()
    second = values("f32", COUNT // 2, 7).numpy().tobytes()
    frame, read = said(2, first), honest.ask(received)
    raw.sendall(frame[:HALF])
    until_received(read + HALF)
    honest.ask(switch, "pair", 2)
    raw.sendall(frame[HALF:])
    until_received(read + len(frame))
    assert honest.ask(talk, "pair", kind, COUNT) == first
    frame, read = said(2, second), honest.ask(received)
    raw.sendall(frame)  # which nobody awaits yet, so it is held as the first one was
    until_received(read + len(frame))
    assert honest.ask(talk, "pair", kind, COUNT // 2) == second


def next_kind(raw: RawLink, kind: str) -> dict[str, Any]:
    """The words of the next frame that is not about the link's own flow."""
    number = {"data": 1, "letter": 3}[kind]
    while True:
        said, _ = next_frame(raw)
        if said["kind"] == number:
            return said
