"""Who comes last to a call waits least, and each thread knows for how long it has waited."""

import threading
import time

import pytest
from native_data import blank, buffer, code, values
from native_team import Formation, Rank
from native_topologies import on

from trainmover import _native

SLEEPS_S = 0.15
WAIT_S = 20.0


def late(rank: Rank, name: str, how: str) -> tuple[float, float]:
    """Seat 0 comes late to a call. Seconds that each has slept, and has waited."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    group.barrier(False)
    before, begun = _native.waited_ns(), time.monotonic()
    if seat == 0:
        time.sleep(SLEEPS_S)
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
    told = world.all(late, how)
    (slept_s, own_s), *others = told
    assert all(waited_s > slept_s / 2 > own_s for _, waited_s in others), told


def elsewhere(rank: Rank, name: str) -> tuple[int, int]:
    """What another thread has waited, and what this one knows of it: nothing."""
    group, (seat, _) = rank.groups[name], rank.seats[name]
    group.barrier(False)
    before, told = _native.waited_ns(), []

    def waits() -> None:
        if seat == 0:
            time.sleep(SLEEPS_S)
        group.barrier(False)
        told.append(_native.waited_ns())

    thread = threading.Thread(target=waits)
    thread.start()
    thread.join()
    return told[0], _native.waited_ns() - before


@pytest.mark.parametrize("team", on("3-shm", "3-tcp"), indirect=True)
def test_a_thread_counts_its_own_waits(world: Formation) -> None:
    for seat, (there, here) in enumerate(world.all(elsewhere)):
        assert here == 0
        assert there > 0 or seat == 0
