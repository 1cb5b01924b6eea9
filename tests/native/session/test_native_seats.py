"""A seat is known by epoch and life: what was said in one is never taken for the other."""

import ctypes
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from native_calls import KINDS, Call, Staged, perform, staged
from native_data import buffer, code, values
from native_outcomes import Outcome, abort, outcome, until_broken
from native_team import Formation, Rank, prepare, switch
from native_topologies import on

from trainmover import _native

NEAR = on("2-shm", "3-shm", "3-pairs")
CHECK = [Call("all_reduce", count=70_000, seed=5), Call("all_gather", "f32", 4000), Call("barrier")]


def stop_at(rank: Rank, name: str, call: Call, point: int) -> Outcome:
    """Go on with the call until the point is reached, where this process is stopped; and when it
    is continued, until the call does not work any more. Fails where one gives other numbers."""
    _native.arm_point(point, int(signal.SIGSTOP))
    return until_broken(rank, name, call)


def overtake(world: Formation, victim: int, call: Call, point: int) -> Outcome:
    """The others go on without the seat, and use their memory for other things; then it goes on."""
    old, rest = world.players[victim], world.others(victim)
    for player in rest:
        player.start(until_broken, "world", call)
    old.start(stop_at, "world", call, point)
    old.await_stop()
    for player in rest:
        player.tell(abort, "world")
    world.team.finish(rest)
    world.refill(victim)
    world.all(perform, CHECK)
    old.signal(signal.SIGCONT)
    ended: Outcome = old.finish()
    world.all(perform, CHECK)
    old.end()
    return ended


def points_in(rank: Rank, name: str, call: Call) -> int:
    before = _native.points()
    staged(call, *rank.seats[name]).run(rank.groups[name])
    return int(_native.points() - before)


def strike_points(world: Formation, kind: str, share: int) -> None:
    """At every `share`-th point of a call, beginning anywhere."""
    call = Call(kind, "f32", 150_000, root=1, seed=11)
    victim = KINDS.index(kind) % world.size
    most = max(max(world.all(points_in, call)), 1)
    for point in range(1 + KINDS.index(kind) % share, 2 * most + 2, share):
        assert overtake(world, victim, call, point).kind != "ok"


@pytest.mark.turns(4)
@pytest.mark.parametrize("team", NEAR, indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_a_late_seat_never_gets_other_numbers(world: Formation, kind: str) -> None:
    strike_points(world, kind, 12)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("team", NEAR, indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_a_late_seat_at_every_point(world: Formation, kind: str) -> None:
    strike_points(world, kind, 1)


def leave_group(rank: Rank, name: str) -> None:
    rank.groups.pop(name).close()


def sum_of_ones(rank: Rank, name: str) -> Outcome:
    held = buffer(values("f32", 8, rank.seats[name][0]))
    rank.groups[name].set_timeout(2.0)
    return outcome(lambda: rank.groups[name].all_reduce(held.pointer, 8, code("f32"), 0, False))


@pytest.mark.parametrize("team", on("2-shm", "2-tcp"), indirect=True)
def test_nothing_of_a_group_that_was_left_is_ever_done(world: Formation) -> None:
    """Its memory is given to the next group at once: nobody takes what lies there for its own."""
    dead = Formation(world.team, "dead")
    cards = dead.cards()
    dead.all(prepare, 1, cards)
    dead.players[0].ask(leave_group, "dead")
    fresh = Formation(world.team, "fresh")
    fresh.advance()
    dead.players[1].ask(switch, "dead", 1)
    dead.players[1].start(sum_of_ones, "dead")
    for seed in range(20):
        fresh.players[0].start(perform, "fresh", [Call("all_reduce", count=8, seed=seed)])
        fresh.players[1].tell(perform, "fresh", [Call("all_reduce", count=8, seed=seed)])
        fresh.players[0].finish()
    assert dead.players[1].finish().kind in {"PeerLost", "TimedOut"}


def with_other_region(card: bytes, other: bytes) -> bytes:
    """The card, with the other's place in memory."""
    at = 8 + 3 * 8
    return card[:at] + other[at : at + 8] + card[at + 8 :]


@pytest.mark.parametrize("team", on("2-shm"), indirect=True)
def test_a_card_that_names_another_board_gives_no_sum(world: Formation) -> None:
    forged = Formation(world.team, "forged")
    cards = forged.cards()
    cards[0] = with_other_region(cards[0], world.cards()[0])
    forged.players[1].ask(prepare, "forged", 1, cards)
    forged.players[0].ask(prepare, "forged", 1, forged.cards())
    forged.all(switch, 1)
    ended = forged.all(sum_of_ones)
    assert {one.kind for one in ended} <= {"PeerLost", "TimedOut"}


@pytest.mark.parametrize("first", [(1 << 24) - 1, (1 << 32) - 1, (1 << 62) - 1])
@pytest.mark.parametrize("team", on("2-shm", "2-tcp"), indirect=True)
def test_epochs_are_as_wide_as_their_type(team: Any, first: int) -> None:
    world = Formation(team, "world")
    world.epoch = first - 1
    for _ in range(3):
        world.advance()
        world.all(perform, CHECK)


def waits_for(rank: Rank, name: str) -> float:
    begun = time.monotonic()
    ended = outcome(lambda: perform(rank, name, [Call("all_reduce", count=16)]))
    assert ended.kind == "PeerLost"
    return time.monotonic() - begun


@pytest.mark.parametrize("team", on("2-shm", "2-tcp", "3-pairs"), indirect=True)
def test_whoever_waits_hears_at_once_of_a_group_that_is_closed(world: Formation) -> None:
    leaver = world.players[-1]
    for player in world.others(world.size - 1):
        player.start(waits_for, "world")
    leaver.ask(leave_group, "world")
    assert max(world.team.finish(world.others(world.size - 1))) < 10  # Not: the time limit.


def close_beside_switch(rank: Rank, name: str, epoch: int, cards: list[bytes]) -> int:
    """How many groups the endpoint still has."""
    prepare(rank, name, epoch, cards)
    group = rank.groups[name]
    threads = [
        threading.Thread(target=lambda: outcome(lambda: group.switchover(epoch))),
        threading.Thread(target=group.close),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert group.epoch is None
    rank.groups.pop(name)
    return int(rank.endpoint.stats()["groups"])


@pytest.mark.parametrize("team", on("2-shm"), indirect=True)
def test_a_group_closed_beside_its_switchover_leaves_nothing(world: Formation) -> None:
    for turn in range(30):
        group = Formation(world.team, f"short-{turn}")
        cards = group.cards()
        assert group.all(close_beside_switch, 1, cards) == [1, 1]


@contextmanager
def no_more_memory() -> Iterator[None]:
    """No room for anything new that is large, nor in what this process has got and does not use."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (4 << 20)
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    taken = []
    while block := libc.malloc(4 << 20):
        taken.append(block)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        for block in taken:
            libc.free(block)


def short_of(rank: Rank, name: str, seat_short: int) -> list[str]:
    """A large call, for which one seat has no memory, and one more: their ends."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    group.set_timeout(15.0)
    large = staged(Call("all_reduce", "f32", 8_000_000, seed=1), seat, size)
    small = staged(Call("all_reduce", "f32", 8, seed=2), seat, size)
    with no_more_memory() if seat == seat_short else nullcontext():
        first = end_of(large, group)
    return [first, end_of(small, group)]


def end_of(call: Staged, group: Any) -> str:
    """Without a look at the result, which takes memory too."""
    try:
        ticket = call.start(group)
        assert ticket is None or ticket.wait(60)
    except (MemoryError, _native.NativeError) as error:
        return type(error).__name__
    return "ok"


@pytest.mark.parametrize("team", on("2-tcp"), indirect=True)
def test_no_memory_fails_one_call_and_is_told(world: Formation) -> None:
    short, other = world.all(short_of, 0)
    assert short == ["MemoryError", "Failed"]
    assert other == ["PeerLost", "PeerLost"]
    world.advance()
    world.all(perform, CHECK)


def fork_and_try(rank: Rank, name: str, forks: int) -> list[int]:
    """Children made while collectives run: the methods that raise in each; -14 if one hangs."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    running = threading.Thread(
        target=perform, args=(rank, name, [Call("all_reduce", count=5000)] * 60)
    )
    running.start()
    held = buffer(values("f32", 16, 1))
    methods = [
        lambda: group.all_reduce(held.pointer, 16, code("f32"), 0, False),
        lambda: group.send(held.pointer, 16, code("f32"), 1 - seat, 1),
        lambda: group.recv(held.pointer, 16, code("f32"), 1 - seat, 1),
        lambda: group.abort("a child"),
        lambda: group.epoch,
        lambda: group.broken,
        lambda: group.card(),
        lambda: group.set_timeout(1.0),
        lambda: rank.endpoint.links(),
        lambda: rank.endpoint.stats(),
    ]
    children = []
    for _ in range(forks):
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            refused = sum(outcome(method).kind == "Refused" for method in methods)  # type: ignore[arg-type]
            group.close()
            os._exit(100 + refused)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) - 100 for child in children]
    running.join()
    assert size == 2
    return codes


@pytest.mark.parametrize("team", on("2-shm", "2-tcp"), indirect=True)
def test_a_forked_child_is_refused_at_once(world: Formation) -> None:
    for codes in world.all(fork_and_try, 12):
        assert codes == [10] * 12
    world.all(perform, CHECK)


def map_writable(rank: Rank, _: str) -> bool:
    """Whether some descriptor of shared memory that came from another process can be written."""
    here = f"/proc/{os.getpid()}/fd"
    found = []
    for number in os.listdir(here):
        try:
            if "memfd:trainmover" in os.readlink(f"{here}/{number}"):
                found.append(int(number))
        except OSError:
            continue
    assert found
    flags = [Path(f"/proc/{os.getpid()}/fdinfo/{fd}").read_text() for fd in found]
    modes = sorted(int(text.split("flags:")[1].split()[0], 8) & os.O_ACCMODE for text in flags)
    return modes == [os.O_RDONLY, os.O_RDWR]


@pytest.mark.parametrize("team", on("2-shm"), indirect=True)
def test_what_neighbours_get_of_a_process_cannot_be_written(world: Formation) -> None:
    assert all(world.all(map_writable))
