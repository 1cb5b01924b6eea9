"""Collective calls as values: every rank makes the same inputs and checks its own result."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from native_data import (
    DTYPES,
    PROFILES,
    REDUCIBLE,
    Buffer,
    blank,
    buffer,
    code,
    op_code,
    raw,
    reference,
    same_bits,
    values,
    width,
)
from native_team import Rank

PROPERTY = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # to shrink a hang would take a patience each time
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CAMPAIGN = settings(PROPERTY, derandomize=False)

REDUCING = ["all_reduce", "reduce", "reduce_scatter"]
MOVING = ["broadcast", "all_gather", "gather", "scatter", "all_to_all"]
KINDS = [*REDUCING, *MOVING, "barrier"]


@dataclass(frozen=True)
class Call:
    """One collective, the same on every seat. `count` elements per seat, `root` modulo the size."""

    kind: str
    dtype: str = "f32"
    count: int = 8
    op: str = "sum"
    root: int = 0
    seed: int = 0
    offset: int = 0  # elements by which every pointer is off an aligned address
    profile: str = "plain"
    in_place: bool = False  # where the API lets an output be an input
    background: bool = False

    def exchanged(self, sender: int, receiver: int) -> int:
        """Elements of an all_to_all between these two: uneven, and none between some."""
        mix = self.seed * 31 + sender * 7 + receiver * 3
        return 0 if mix % 5 == 0 else self.count * (1 + mix % 3) // 2


@dataclass
class Staged:
    """A call on one seat with its memory: what must not change, and what must come out."""

    call: Call
    start: Callable[[Any], Any]  # of the group; gives a Ticket or None
    untouched: list[tuple[Buffer, torch.Tensor]] = field(default_factory=list)
    expected: list[tuple[Buffer, Callable[[], torch.Tensor]]] = field(default_factory=list)

    def run(self, group: Any) -> None:
        ticket = self.start(group)
        assert (ticket is not None) == self.call.background
        if ticket is not None:
            assert ticket.wait(60)
        self.check()

    def check(self) -> None:
        for held, before in self.untouched:
            assert torch.equal(raw(held.tensor), raw(before)), f"{self.call}: an input changed"
        for held, result in self.expected:
            wanted = result()
            assert same_bits(held.tensor, wanted), (
                f"{self.call}: got {held.tensor[:8].tolist()}, wanted {wanted[:8].tolist()}"
            )
        for held, _ in [*self.untouched, *self.expected]:
            assert held.fence_stands(), f"{self.call}: wrote beside the buffer"


def staged(call: Call, seat: int, size: int) -> Staged:
    """The call as the seat makes it, with inputs that every seat can compute."""
    return _STAGERS[call.kind](call, seat, size)


def _part(call: Call, seat: int, lot: int = 0) -> torch.Tensor:
    """What the seat puts in. `lot` tells apart the pieces of one seat."""
    seed = (call.seed * 97 + seat) * 101 + lot
    return values(call.dtype, call.count, seed, call.profile)


def _all_reduce(call: Call, seat: int, size: int) -> Staged:
    data = buffer(_part(call, seat), call.offset)

    def start(group: Any) -> Any:
        dtype, op = code(call.dtype), op_code(call.op)
        return group.all_reduce(data.pointer, call.count, dtype, op, call.background)

    whole = _sum_of(call, size)
    return Staged(call, start, expected=[(data, whole)])


def _sum_of(call: Call, size: int, lot: int = 0) -> Callable[[], torch.Tensor]:
    return lambda: reference([_part(call, peer, lot) for peer in range(size)], call.op)


def _reduce(call: Call, seat: int, size: int) -> Staged:
    data, root = buffer(_part(call, seat), call.offset), call.root % size

    def start(group: Any) -> Any:
        dtype, op = code(call.dtype), op_code(call.op)
        return group.reduce(data.pointer, call.count, dtype, op, root, call.background)

    if seat == root:
        return Staged(call, start, expected=[(data, _sum_of(call, size))])
    return Staged(call, start, untouched=[(data, data.tensor.clone())])


def _reduce_scatter(call: Call, seat: int, size: int) -> Staged:
    inputs = [buffer(_part(call, seat, lot), call.offset) for lot in range(size)]
    output = inputs[seat] if call.in_place else blank(call.dtype, call.count, call.offset)

    def start(group: Any) -> Any:
        dtype, op = code(call.dtype), op_code(call.op)
        pointers = [piece.pointer for piece in inputs]
        return group.reduce_scatter(
            pointers, output.pointer, call.count, dtype, op, call.background
        )

    kept = [(piece, piece.tensor.clone()) for piece in inputs if piece is not output]
    return Staged(call, start, kept, [(output, _sum_of(call, size, seat))])


def _broadcast(call: Call, seat: int, size: int) -> Staged:
    root = call.root % size
    theirs = _part(call, root)
    data = buffer(theirs, call.offset) if seat == root else blank(call.dtype, call.count, 1)

    def start(group: Any) -> Any:
        return group.broadcast(data.pointer, call.count, code(call.dtype), root, call.background)

    return Staged(call, start, expected=[(data, lambda: theirs)])


def _pieces(call: Call, size: int) -> list[Buffer]:
    return [blank(call.dtype, call.count, call.offset) for _ in range(size)]


def _all_gather(call: Call, seat: int, size: int) -> Staged:
    outputs = _pieces(call, size)
    own = outputs[seat] if call.in_place else buffer(_part(call, seat), call.offset)
    own.tensor.copy_(_part(call, seat))

    def start(group: Any) -> Any:
        pointers = [piece.pointer for piece in outputs]
        return group.all_gather(
            own.pointer, pointers, call.count, code(call.dtype), call.background
        )

    kept = [] if call.in_place else [(own, own.tensor.clone())]
    return Staged(call, start, kept, [(o, _given(call, p)) for p, o in enumerate(outputs)])


def _given(call: Call, peer: int, lot: int = 0) -> Callable[[], torch.Tensor]:
    return lambda: _part(call, peer, lot)


def _gather(call: Call, seat: int, size: int) -> Staged:
    root = call.root % size
    outputs = _pieces(call, size) if seat == root else []
    own = buffer(_part(call, seat), call.offset)

    def start(group: Any) -> Any:
        pointers = [piece.pointer for piece in outputs]
        return group.gather(
            own.pointer, pointers, call.count, code(call.dtype), root, call.background
        )

    given = [(piece, _given(call, peer)) for peer, piece in enumerate(outputs)]
    return Staged(call, start, [(own, own.tensor.clone())], given)


def _scatter(call: Call, seat: int, size: int) -> Staged:
    root = call.root % size
    lots = range(size if seat == root else 0)
    inputs = [buffer(_part(call, root, lot), call.offset) for lot in lots]
    output = blank(call.dtype, call.count, call.offset)

    def start(group: Any) -> Any:
        pointers = [piece.pointer for piece in inputs]
        return group.scatter(
            pointers, output.pointer, call.count, code(call.dtype), root, call.background
        )

    kept = [(piece, piece.tensor.clone()) for piece in inputs]
    return Staged(call, start, kept, [(output, _given(call, root, seat))])


def _sent(call: Call, sender: int, receiver: int) -> torch.Tensor:
    seed = (call.seed * 89 + sender) * 103 + receiver
    return values(call.dtype, call.exchanged(sender, receiver), seed, call.profile)


def _all_to_all(call: Call, seat: int, size: int) -> Staged:
    inputs = [buffer(_sent(call, seat, peer), call.offset) for peer in range(size)]
    counts = [call.exchanged(peer, seat) for peer in range(size)]
    outputs = [blank(call.dtype, count, call.offset) for count in counts]

    def start(group: Any) -> Any:
        return group.all_to_all(
            [piece.pointer for piece in inputs],
            [piece.tensor.numel() for piece in inputs],
            [piece.pointer for piece in outputs],
            counts,
            code(call.dtype),
            call.background,
        )

    def arriving(peer: int) -> Callable[[], torch.Tensor]:
        return lambda: _sent(call, peer, seat)

    kept = [(piece, piece.tensor.clone()) for piece in inputs]
    return Staged(call, start, kept, [(o, arriving(peer)) for peer, o in enumerate(outputs)])


def _barrier(call: Call, seat: int, size: int) -> Staged:
    return Staged(call, lambda group: group.barrier(call.background))


_STAGERS: dict[str, Callable[[Call, int, int], Staged]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "barrier": _barrier,
}


def perform(rank: Rank, name: str, calls: list[Call]) -> None:
    """The calls one after the other, each checked when it is done."""
    for call in calls:
        staged(call, *rank.seats[name]).run(rank.groups[name])


def perform_queued(rank: Rank, name: str, calls: list[Call]) -> None:
    """All calls are begun before any is waited for; those in the foreground wait by themselves."""
    ready = [staged(call, *rank.seats[name]) for call in calls]
    tickets = [one.start(rank.groups[name]) for one in ready]
    for ticket in tickets:
        assert ticket is None or ticket.wait(60)
    for one in ready:
        one.check()


BORDERS = [64 << 10, 256 << 10, 512 << 10, 1 << 20]
SMALL = [0, 1, 2, 3, 5, 7, 8, 31, 64, 127, 257, 1009]


def counts_near_borders(dtype: str, size: int) -> list[int]:
    """Elements whose bytes lie at a border of chunks, over one seat's part or over all."""
    wide = width(dtype)
    at = [border // wide for border in BORDERS] + [border // wide // size for border in BORDERS]
    return sorted({count + step for count in at for step in (-1, 0, 1)})


@st.composite
def any_call(draw: st.DrawFn, size: int, largest: int = 1 << 21) -> Call:
    """A collective of any kind; mostly small, at times as large as chunks are."""
    kind = draw(st.sampled_from(KINDS))
    dtype, op = draw(st.sampled_from(REDUCIBLE))
    if kind in MOVING:
        dtype = draw(st.sampled_from(DTYPES))
    large = [n for n in counts_near_borders(dtype, size) if n * width(dtype) <= largest]
    sizes = st.sampled_from(SMALL) | st.integers(0, 300)
    if large:
        sizes |= st.sampled_from(large)
    return Call(
        kind,
        dtype,
        draw(sizes),
        op,
        draw(st.integers(0, size - 1)),
        draw(st.integers(0, 1 << 20)),
        draw(st.sampled_from([0, 0, 1, 3])),
        draw(st.sampled_from(PROFILES)),
        draw(st.booleans()),
        draw(st.booleans()),
    )


def any_calls(size: int, most: int = 6) -> st.SearchStrategy[list[Call]]:
    return st.lists(any_call(size), min_size=1, max_size=most)
