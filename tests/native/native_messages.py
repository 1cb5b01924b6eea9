"""Point-to-point traffic as values, and the programs that carry it out."""

from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st
from native_data import DTYPES, blank, buffer, code, same_bits, values, width
from native_team import Rank


@dataclass(frozen=True)
class Message:
    sender: int
    receiver: int
    tag: int
    dtype: str
    count: int
    seed: int

    def content(self) -> Any:
        return values(self.dtype, self.count, self.seed, "bits")


def exchange(rank: Rank, name: str, messages: list[Message], shuffle: int) -> None:
    """All sends and receives of the seat outstanding at once; those of one (peer, tag) in order."""
    group, (seat, _) = rank.groups[name], rank.seats[name]
    chance = Random(shuffle * 64 + seat)
    out = [("send", m) for m in messages if m.sender == seat]
    into = [("recv", m) for m in messages if m.receiver == seat]
    sent, received = [], []
    for way, message in _merged(out, into, chance):
        if way == "send":
            held = buffer(message.content())
            peer, pointer = message.receiver, held.pointer
            ticket = group.send(pointer, message.count, code(message.dtype), peer, message.tag)
            sent.append((message, held, ticket))
        else:
            held = blank(message.dtype, message.count)
            peer, pointer = message.sender, held.pointer
            ticket = group.recv(pointer, message.count, code(message.dtype), peer, message.tag)
            received.append((message, held, ticket))
    chance.shuffle(received)
    for message, held, ticket in [*received, *sent]:
        assert ticket.wait(60), message
        assert same_bits(held.tensor, message.content()), message
        assert held.fence_stands()
    assert all(ticket.source == message.sender for message, _, ticket in received)


def _merged(left: list[Any], right: list[Any], chance: Random) -> list[Any]:
    """Both in their own order, mixed by chance."""
    turns = [0] * len(left) + [1] * len(right)
    chance.shuffle(turns)
    lanes = [iter(left), iter(right)]
    return [next(lanes[turn]) for turn in turns]


@st.composite
def traffic(draw: st.DrawFn, size: int, most: int = 24) -> list[Message]:
    """Messages between any two seats, in the order in which both ends post them."""
    large = [(256 << 10) - 1, 256 << 10, (1 << 20) + 1]

    def message() -> Message:
        dtype = draw(st.sampled_from(DTYPES))
        sender = draw(st.integers(0, size - 1))
        receiver = (sender + draw(st.integers(1, size - 1))) % size
        octets = draw(st.sampled_from([0, 1, 8, 100, 5000]) | st.sampled_from(large))
        tag = draw(st.sampled_from([0, 1, 2, 77, (1 << 31) - 1]))
        return Message(
            sender, receiver, tag, dtype, octets // width(dtype), draw(st.integers(0, 99))
        )

    return [message() for _ in range(draw(st.integers(1, most)))]


def collect_from_anyone(rank: Rank, name: str, each: int, count: int) -> list[tuple[int, bool]]:
    """Seat 0 takes `each` messages of every other seat, whoever comes: sources, and if right."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    if seat != 0:
        held = [buffer(values("i32", count, seat * 1000 + turn)) for turn in range(each)]
        tickets = [group.send(one.pointer, count, code("i32"), 0, 5) for one in held]
        assert all(ticket.wait(60) for ticket in tickets)
        return []
    boxes = [blank("i32", count) for _ in range(each * (size - 1))]
    tickets = [group.recv(one.pointer, count, code("i32"), -1, 5) for one in boxes]
    assert all(ticket.wait(60) for ticket in tickets)
    turns = dict.fromkeys(range(size), 0)
    taken = []
    for box, ticket in zip(boxes, tickets, strict=True):
        source = ticket.source
        expected = values("i32", count, source * 1000 + turns[source])
        turns[source] += 1
        taken.append((source, same_bits(box.tensor, expected)))
    return taken
