"""A member dies, or stops, at every point where the algorithms wait for each other."""

import signal

import pytest
from native_calls import KINDS, Call, perform, staged
from native_messages import Message, exchange
from native_outcomes import ENDED, abort, outcome, try_prepare, until_broken
from native_team import Formation, Player, Rank, enter
from native_topologies import of_size, on

from trainmover import _native

SAMPLED = on("3-shm", "3-tcp", "3-pairs")
CHECK = [Call("all_reduce", count=70_000, seed=5), Call("all_to_all", "u8", 4000), Call("barrier")]


def call_of(kind: str) -> Call:
    return Call(kind, "f32", 150_000, root=1, seed=11)


def count_points(rank: Rank, name: str, call: Call) -> int:
    """How many points this seat passes in one call."""
    before = _native.points()
    staged(call, *rank.seats[name]).run(rank.groups[name])
    return int(_native.points() - before)


def meet_point(rank: Rank, name: str, call: Call, point: int, number: int) -> None:
    """Go on with the call until the point is reached: that ends or stops this process."""
    _native.arm_point(point, number)
    until_broken(rank, name, call)


def strike(world: Formation, victim: int, call: Call, point: int, number: signal.Signals) -> None:
    """The member is struck at the point; the others get out; the next epoch is complete."""
    old = world.players[victim]
    rest = world.others(victim)
    for player in rest:
        player.start(until_broken, "world", call)
    old.start(meet_point, "world", call, point, int(number))
    if number == signal.SIGKILL:
        assert old.await_end() == -signal.SIGKILL
    else:
        old.await_stop()
        for player in rest:
            player.tell(abort, "world")
    kinds = {ended.kind for ended in world.team.finish(rest)}
    assert kinds <= ({"PeerLost"} if number == signal.SIGKILL else ENDED)
    world.refill(victim)
    world.all(perform, CHECK)
    old.end()


def points_of(world: Formation, victim: int, kind: str) -> int:
    return max(world.all(count_points, call_of(kind))[victim], 1)


@pytest.mark.turns(8)
@pytest.mark.parametrize("team", SAMPLED, indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_some_points_of_each_collective(world: Formation, kind: str) -> None:
    victim = KINDS.index(kind) % world.size
    most = points_of(world, victim, kind)
    strike(world, victim, call_of(kind), 1 + most // 3, signal.SIGKILL)
    strike(world, victim, call_of(kind), 1 + 2 * most // 3, signal.SIGSTOP)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("team", of_size(2, 3, 4), indirect=True)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("kind", KINDS)
def test_every_point_of_each_collective(
    world: Formation, kind: str, number: signal.Signals
) -> None:
    for victim in range(world.size):
        for point in range(1, points_of(world, victim, kind) + 2):
            strike(world, victim, call_of(kind), point, number)


def exchange_to_point(
    rank: Rank, name: str, messages: list[Message], point: int, number: int
) -> None:
    _native.arm_point(point, number)
    exchange_until_broken(rank, name, messages)


def exchange_until_broken(rank: Rank, name: str, messages: list[Message]) -> str:
    while True:
        ended = outcome(lambda: exchange(rank, name, messages, 0))
        if ended.kind != "ok":
            return ended.kind


def count_in_exchange(rank: Rank, name: str, messages: list[Message]) -> int:
    before = _native.points()
    exchange(rank, name, messages, 0)
    return int(_native.points() - before)


@pytest.mark.parametrize("team", on("2-shm", "2-tcp"), indirect=True)
def test_points_of_messages(world: Formation) -> None:
    messages = [Message(i % 2, 1 - i % 2, i % 3, "f32", 90_000 * (i % 3), i) for i in range(8)]
    most = max(world.all(count_in_exchange, messages)[1], 1)
    for point in sorted({1, 1 + most // 2, most}):
        old = world.players[1]
        world.players[0].start(exchange_until_broken, "world", messages)
        old.start(exchange_to_point, "world", messages, point, int(signal.SIGKILL))
        assert old.await_end() == -signal.SIGKILL
        assert world.players[0].finish() == "PeerLost"
        world.refill(1)
        world.all(perform, CHECK)


def enter_to_point(
    rank: Rank, name: str, epoch: int, cards: list[bytes], point: int, number: int
) -> int:
    """Take a seat with a point armed. Returns how many points there were."""
    before = _native.points()
    if number:
        _native.arm_point(point, number)
    enter(rank, name, epoch, cards)
    return int(_native.points() - before)


def join_and_fall(world: Formation, seat: int, point: int) -> None:
    """A newcomer dies at the point of its phase one; the next newcomer is taken instead."""
    stayers = world.others(seat)
    fallen = _newcomer(world, seat)
    cards = world.cards()
    for player in stayers:
        player.start(try_prepare, "world", world.epoch + 1, cards, 10.0)
    fallen.start(enter_to_point, "world", world.epoch + 1, cards, point, int(signal.SIGKILL))
    world.team.finish(stayers)
    fallen.end()
    world.epoch += 1
    _newcomer(world, seat)
    world.advance()
    world.all(perform, CHECK)


def _newcomer(world: Formation, seat: int) -> Player:
    world.players[seat] = world.team.newcomer(world.players[seat].host)
    return world.players[seat]


@pytest.mark.turns(4)
@pytest.mark.parametrize("team", SAMPLED, indirect=True)
def test_points_of_joining(world: Formation) -> None:
    seat = 1
    world.players[seat].end()
    newcomer = _newcomer(world, seat)
    cards = world.cards()
    for player in world.others(seat):
        player.start(enter, "world", 2, cards)
    most = newcomer.ask(enter_to_point, "world", 2, cards, 0, 0)
    world.team.finish(world.others(seat))
    world.epoch = 2
    world.all(perform, CHECK)
    for point in range(1, min(most, 4) + 1):
        world.players[seat].end()
        join_and_fall(world, seat, point)
