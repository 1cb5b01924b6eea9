"""Who comes last to a call waits least; two waits at once are one."""

import time

import pytest
from native_data import blank, buffer, code, values
from native_team import Formation, Rank
from native_topologies import on

from trainmover import _native

SLEEPS_S = [0.15, 0.6, 2.4]
"""One after the other, until one is long enough for what else the machine does not to matter."""
WAIT_S = 20.0


def late(rank: Rank, name: str, how: str, sleeps_s: float) -> tuple[float, float]:
    """Seat 0 comes late to a call. Seconds that each has slept, and has waited."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    group.barrier(False)
    before, begun = _native.waited_ns(), time.monotonic()
    if seat == 0:
        time.sleep(sleeps_s)
    slept_s = time.monotonic() - begun
    count = 1000
    whole, box = buffer(values("f32", count, seat)), blank("f32", count)
    if how == "call":
        group.all_reduce(whole.pointer, count, code("f32"), _native.OPS["sum"], False)
    elif how == "background":
        ticket = group.all_reduce(whole.pointer, count, code("f32"), _native.OPS["sum"], True)
        assert ticket.wait(WAIT_S)
    elif seat == 0:
        for other in range(1, size):
            assert group.send(whole.pointer, count, code("f32"), other, 1).wait(WAIT_S)
    else:
        assert group.recv(box.pointer, count, code("f32"), 0, 1).wait(WAIT_S)
    return slept_s, (_native.waited_ns() - before) / 1e9


@pytest.mark.parametrize("how", ["call", "background", "message"])
@pytest.mark.parametrize("team", on("3-shm", "3-tcp"), indirect=True)
def test_who_is_waited_for_has_waited_least(world: Formation, how: str) -> None:
    told = []
    for sleeps_s in SLEEPS_S:
        (slept_s, own_s), *others = world.all(late, how, sleeps_s)
        if all(waited_s > slept_s / 2 > own_s for _, waited_s in others):
            return
        told += [(slept_s, own_s), *others]
    pytest.fail(f"slept and waited: {told}")


def at_once(rank: Rank, name: str, sleeps_s: float) -> tuple[float, float]:
    """Seconds that two waits at once have lasted, and that were counted for them."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    group.barrier(False)
    before, begun = _native.waited_ns(), time.monotonic()
    box, word = blank("f32", 1), buffer(values("f32", 1, 7))
    if seat == 0:
        time.sleep(sleeps_s)
    ticket = group.barrier(True)
    if seat == 0:
        for other in range(1, size):
            assert group.send(word.pointer, 1, code("f32"), other, 1).wait(WAIT_S)
    else:
        assert group.recv(box.pointer, 1, code("f32"), 0, 1).wait(WAIT_S)
    assert ticket.wait(WAIT_S)
    return time.monotonic() - begun, (_native.waited_ns() - before) / 1e9


@pytest.mark.parametrize("team", on("3-shm", "3-tcp"), indirect=True)
def test_two_waits_at_once_count_once(world: Formation) -> None:
    told = []
    for sleeps_s in SLEEPS_S:
        _, *others = world.all(at_once, sleeps_s)
        assert all(waited_s <= lasted_s for lasted_s, waited_s in others), others
        if all(lasted_s / 2 < waited_s for lasted_s, waited_s in others):
            return
        told += others
    pytest.fail(f"lasted and waited: {told}")


def waits_for(rank: Rank, name: str, sleeps_s: float) -> dict[int, float]:
    """Seat 0 comes late to a call: seat -> seconds that each other has waited for it."""
    group, (seat, _) = rank.groups[name], rank.seats[name]
    group.barrier(False)
    _native.waited_for()
    if seat == 0:
        time.sleep(sleeps_s)
    count = 1000
    whole = buffer(values("f32", count, seat))
    group.all_reduce(whole.pointer, count, code("f32"), _native.OPS["sum"], False)
    seats = {peer: at for at, peer in enumerate(group.peers())}
    told = {seats[peer]: ns / 1e9 for peer, ns in _native.waited_for()}
    assert _native.waited_for() == []  # It is told once.
    return told


def peers_of(rank: Rank, name: str) -> list[int]:
    return rank.groups[name].peers()


@pytest.mark.parametrize("team", on("2-tcp"), indirect=True)
def test_it_is_told_for_whom_on_another_host_one_has_waited(world: Formation) -> None:
    told = []
    for sleeps_s in SLEEPS_S:
        late_one, other = world.all(waits_for, sleeps_s)
        if other.get(0, 0) > sleeps_s / 2 > late_one.get(1, 0):
            return
        told += [late_one, other]
    pytest.fail(f"waited for: {told}")


@pytest.mark.parametrize("team", on("3-shm"), indirect=True)
def test_there_is_no_way_between_seats_of_one_host(world: Formation) -> None:
    assert world.all(waits_for, 0.1) == [{}] * 3


@pytest.mark.parametrize("team", on("3-tcp"), indirect=True)
def test_all_seats_know_the_same_peers(world: Formation) -> None:
    first, *others = world.all(peers_of)
    assert len(set(first)) == 3
    assert others == [first] * 2
