"""Ranks that call different things are told so, all of them, and nobody waits for ever."""

import re
from dataclasses import replace

import pytest
from native_calls import Call, perform, staged
from native_outcomes import Outcome, outcome
from native_team import Formation, Rank
from native_topologies import of_size

PAIRS = [
    (Call("all_reduce"), Call("broadcast")),
    (Call("all_reduce"), Call("barrier")),
    (Call("barrier"), Call("all_gather")),
    (Call("gather"), Call("all_gather")),
    (Call("scatter"), Call("broadcast")),
    (Call("reduce"), Call("all_reduce")),
    (Call("reduce_scatter"), Call("all_to_all")),
    (Call("all_reduce", count=8), Call("all_reduce", count=9)),
    (Call("all_reduce", count=8), Call("all_reduce", count=400_000)),
    (Call("all_reduce", count=400_000), Call("all_reduce", count=400_001)),
    (Call("all_reduce", count=0), Call("all_reduce", count=1)),
    (Call("all_gather", count=100), Call("all_gather", count=300_000)),
    (Call("broadcast", count=2), Call("broadcast", count=3)),
    (Call("all_to_all", count=80), Call("all_to_all", count=90)),
    (Call("all_reduce", "f32"), Call("all_reduce", "i32")),
    (Call("all_gather", "u8"), Call("all_gather", "i8")),
    (Call("all_reduce", op="sum"), Call("all_reduce", op="max")),
    (Call("reduce", op="sum", root=0), Call("reduce", op="sum", root=1)),
    (Call("broadcast", root=0), Call("broadcast", root=1)),
    (Call("gather", root=0), Call("gather", root=1)),
]


BARRIERS = 300  # Enough that a word of the other side must have come.


def call_and_go_on(rank: Rank, name: str, call: Call) -> Outcome:
    """The call, then barriers until something fails."""
    group = rank.groups[name]

    def run() -> None:
        one = staged(call, *rank.seats[name])
        ticket = one.start(group)
        assert ticket is None or ticket.wait(60)
        for _ in range(BARRIERS):
            group.barrier(False)

    return outcome(run)


def disagree(world: Formation, odd: int, one: Call, other: Call) -> None:
    """The odd seat calls `other`, the rest calls `one`."""
    jobs = [
        (player, (world.name, other if seat == odd else one))
        for seat, player in enumerate(world.players)
    ]
    ended = world.team.each(jobs, call_and_go_on)
    told = [answer for answer in ended if answer.kind == "OrderMismatch"]
    assert told, ended
    assert {answer.kind for answer in ended} <= {"OrderMismatch", "PeerLost", "Aborted"}, ended
    for answer in told:
        check_words(answer.text, odd, one, other)
    world.advance()


def check_words(text: str, odd: int, one: Call, other: Call) -> None:
    """Both seats, both calls. A seat that was done with its own may be in the barrier behind it."""
    seats = set(map(int, re.findall(r"seat (\d+)", text)))
    assert odd in seats, text
    assert len(seats) == 2, text
    named = {kind for kind in (one.kind, other.kind, "barrier") if re.search(rf"\b{kind}\b", text)}
    assert named & {one.kind, other.kind}, text
    assert len(named) == 2 or one.kind == other.kind, text
    assert re.search(r"as call \d+ of group world", text), text


@pytest.mark.parametrize("team", of_size(2, 3), indirect=True)
def test_every_disagreement_is_told(world: Formation) -> None:
    for turn, (one, other) in enumerate(PAIRS):
        disagree(world, turn % world.size, one, other)
        world.all(perform, [Call("all_reduce", seed=turn)])


@pytest.mark.parametrize("team", of_size(2, 3), indirect=True)
def test_disagreements_in_the_background(world: Formation) -> None:
    for turn, (one, other) in enumerate(PAIRS[::3]):
        pair = [replace(call, background=True) for call in (one, other)]
        disagree(world, turn % world.size, *pair)


@pytest.mark.parametrize("team", of_size(2), indirect=True)
def test_a_seat_that_is_one_call_behind_is_told(world: Formation) -> None:
    """The same kinds, but one seat has skipped the barrier between them."""
    jobs = [
        (world.players[0], (world.name, [Call("all_reduce"), Call("barrier"), Call("gather")])),
        (world.players[1], (world.name, [Call("all_reduce"), Call("gather"), Call("barrier")])),
    ]
    ended = world.team.each(jobs, perform_and_go_on)
    assert any(answer.kind == "OrderMismatch" for answer in ended), ended
    assert any("as call 2 of group world" in answer.text for answer in ended), ended


def perform_and_go_on(rank: Rank, name: str, calls: list[Call]) -> Outcome:
    def run() -> None:
        perform(rank, name, calls)
        for _ in range(BARRIERS):
            rank.groups[name].barrier(False)

    return outcome(run)
