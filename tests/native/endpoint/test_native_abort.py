"""Nobody waits for a member that is dead, stopped or late; memory is the caller's after abort."""

import signal
import time
from random import Random

import pytest
from native_calls import KINDS, Call, perform
from native_data import blank, code
from native_outcomes import (
    ENDED,
    Outcome,
    abort,
    abort_and_paint,
    broken,
    flood,
    lay_flood,
    outcome,
    paint_is_dry,
    rounds_done,
    until_broken,
)
from native_team import Formation, Player, Rank
from native_topologies import of_size, on

three = pytest.mark.parametrize("team", of_size(3), indirect=True)
mixes = pytest.mark.parametrize("team", on("2-shm", "2-tcp", "3-crossed", "4-pairs"), indirect=True)
CHECK = [
    Call("all_reduce", count=70_000, seed=5),
    Call("reduce_scatter", "bf16", 900),
    Call("all_to_all", "u8", 4000),
    Call("barrier"),
]


def await_rounds(world: Formation) -> None:
    """Until every rank has done a round of `until_broken`."""
    for player in world.players:
        world.team.until(lambda p=player: p.tell(rounds_done, "world"), "a round")  # type: ignore[misc]


@pytest.mark.turns(8)
@three
@pytest.mark.parametrize("kind", KINDS)
def test_a_death_wakes_everybody_by_itself(world: Formation, kind: str) -> None:
    victim = KINDS.index(kind) % 3
    world.start(until_broken, Call(kind, count=9000, root=1))
    await_rounds(world)
    world.players[victim].end()
    for ended in world.team.finish(world.others(victim)):
        assert ended.kind == "PeerLost"
        assert "seat " in ended.text
    world.refill(victim)
    world.all(perform, CHECK)


@pytest.mark.turns(8)
@three
@pytest.mark.parametrize("kind", KINDS)
def test_abort_wakes_those_who_wait_for_a_stopped_member(world: Formation, kind: str) -> None:
    victim = (KINDS.index(kind) + 1) % 3
    world.start(until_broken, Call(kind, count=9000, root=1))
    await_rounds(world)
    world.players[victim].stop()
    stayers = world.others(victim)
    for player in stayers:
        player.tell(abort, "world")
        assert player.tell(broken, "world")
    assert {ended.kind for ended in world.team.finish(stayers)} <= ENDED
    world.refill(victim)
    world.all(perform, CHECK)


@pytest.mark.turns(4)
@mixes
@pytest.mark.parametrize("kind", KINDS)
def test_abort_wakes_those_who_wait_for_a_late_member(world: Formation, kind: str) -> None:
    stayers = world.others(0)
    for player in stayers:
        player.start(until_broken, "world", Call(kind, count=9000))
    for player in stayers:
        player.tell(abort, "world", "coffee")
    for ended in world.team.finish(stayers):
        assert ended.kind in ENDED
    late = world.players[0].ask(until_broken, "world", Call(kind, count=9000))
    assert late.kind in ENDED
    assert [(f["kept"], f["opened"]) for f in world.advance()] == [(world.size - 1, 0)] * world.size
    world.all(perform, CHECK)


@mixes
def test_the_one_who_aborts_gives_the_reason(world: Formation) -> None:
    waiting = world.players[1]
    waiting.start(until_broken, "world", Call("barrier"))
    waiting.tell(abort, "world", "the machine is being cleaned")
    (ended,) = world.team.finish([waiting])
    assert ended.kind == "Aborted"
    assert "the machine is being cleaned" in ended.text


LARGE = [
    Call("all_reduce", count=700_000, background=True, seed=1),
    Call("all_to_all", "i64", 60_000, background=True, seed=2),
    Call("broadcast", "u8", 3_000_001, background=True, seed=3),
    Call("reduce_scatter", "bf16", 90_000, background=True, seed=4),
    Call("all_gather", "f64", 90_000, background=True, seed=5),
]


def abort_at_random(world: Formation, chance: Random) -> None:
    """Large work on all seats, abort on each at a moment of its own, then the next epoch."""
    links = world.links()
    calls = chance.sample(LARGE, len(LARGE))
    world.all(lay_flood, calls)
    world.start(flood)
    for seat in chance.sample(range(world.size), world.size):
        time.sleep(chance.choice([0, 0, 0.001, 0.003, 0.01]))
        world.players[seat].tell(abort_and_paint, "world")
    for ended in world.team.finish(world.players):
        assert {one.kind for one in ended} <= ENDED | {"ok"}
    figures = world.advance()
    assert [(f["kept"], f["opened"], f["closed"]) for f in figures] == [
        (world.size - 1, 0, 0)
    ] * world.size
    world.all(perform, CHECK)
    assert world.all(paint_is_dry) == [True] * world.size
    assert world.links() == links


@pytest.mark.turns(4)
@pytest.mark.parametrize(
    "team", on("2-shm", "2-tcp", "3-crossed", "4-pairs", "4-tcp"), indirect=True
)
def test_abort_in_the_middle_of_large_messages(world: Formation) -> None:
    chance = Random(7)
    for _ in range(12):
        abort_at_random(world, chance)


@pytest.mark.soak
@pytest.mark.parametrize("team", of_size(2, 3, 4, 5), indirect=True)
def test_abort_in_the_middle_of_large_messages_at_length(world: Formation) -> None:
    chance = Random(time.time_ns())
    for _ in range(300):
        abort_at_random(world, chance)


def start_messages(rank: Rank, name: str, count: int) -> None:
    """A send and a receive on every peer; nothing answers the sends."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    held = [(blank("u8", count), blank("u8", count)) for _ in range(size)]
    rank.shelf["messages"] = held
    rank.shelf["tickets"] = [
        ticket
        for peer in range(size)
        if peer != seat
        for ticket in (
            group.send(held[peer][0].pointer, count, code("u8"), peer, 1),
            group.recv(held[peer][1].pointer, count, code("u8"), peer, 2),
        )
    ]


def end_messages(rank: Rank, name: str) -> list[Outcome]:
    return [outcome(lambda t=t: t.wait(60)) for t in rank.shelf["tickets"]]  # type: ignore[misc]


@mixes
def test_abort_ends_messages_that_nobody_answers(world: Formation) -> None:
    world.all(start_messages, 2_000_000)
    world.start(end_messages)
    for player in world.players:
        player.tell(abort, "world")
    for ended in world.team.finish(world.players):
        assert {one.kind for one in ended[1::2]} <= ENDED
        assert {one.kind for one in ended[::2]} <= ENDED | {"ok"}
    world.advance()
    world.all(perform, CHECK)


def lose_seat(world: Formation) -> Player:
    """Seat 1 is given away while its process is stopped. The process, which runs again."""
    old = world.players[1]
    old.stop()
    for player in world.others(1):
        player.tell(abort, "world")
    world.refill(1)
    old.signal(signal.SIGCONT)
    return old


@three
def test_a_process_that_lost_its_seat_is_told(world: Formation) -> None:
    old = lose_seat(world)
    for kind in ("all_reduce", "barrier", "broadcast"):
        told = old.ask(until_broken, "world", Call(kind, count=1000))
        assert told.kind in ENDED | {"Refused"}
        assert told.text
    world.all(perform, CHECK)
    old.end()
    world.all(perform, CHECK)


@three
def test_a_former_member_can_come_back(world: Formation) -> None:
    for _ in range(2):
        old = lose_seat(world)
        between, world.players[1] = world.players[1], old
        world.advance()
        world.all(perform, CHECK)
        between.end()
        world.all(perform, CHECK)


@three
def test_a_group_can_break_again_and_again(world: Formation) -> None:
    for turn in range(6):
        victim = turn % 3
        world.start(until_broken, Call("all_reduce", count=30_000))
        world.players[victim].end()
        for ended in world.team.finish(world.others(victim)):
            assert ended.kind == "PeerLost"
        world.refill(victim)
        world.all(perform, CHECK)


@pytest.mark.parametrize("team", of_size(4), indirect=True)
def test_groups_without_the_broken_member_go_on(world: Formation) -> None:
    rest = Formation(world.team, "rest", world.players[1:])
    rest.advance()
    world.start(until_broken, Call("all_reduce", count=30_000))
    world.players[0].end()
    world.team.finish(world.others(0))
    rest.all(perform, CHECK)
    world.refill(0)
    world.all(perform, CHECK)
    rest.all(perform, CHECK)
