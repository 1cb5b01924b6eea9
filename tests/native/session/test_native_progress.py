"""Whoever waits moves everything forward: no wait, in whatever group, holds up another one."""

import contextlib
import os
import random
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from host_tools import until
from native_calls import KINDS, Call, perform, staged
from native_data import blank, buffer, code, same_bits, values
from native_messages import Message, exchange
from native_team import Formation, Rank
from native_threads import in_threads
from native_topologies import on

from trainmover import _native

FAR = on("3-tcp", "3-pairs", "3-crossed")
WAIT_S = 20.0


def relay(rank: Rank, name: str, count: int) -> float:
    """Seats 0 and 1 are in a collective behind which seat 2 comes only with the message that goes
    from seat to seat. Seconds."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    message, box = buffer(values("f32", count, 7)), blank("f32", count)
    reduction = staged(Call("all_reduce", "f32", 16, seed=3, background=True), seat, size)
    begun = time.monotonic()
    ticket = reduction.start(group) if seat < 2 else None
    if seat > 0:
        assert group.recv(box.pointer, count, code("f32"), seat - 1, 7).wait(WAIT_S)
        assert same_bits(box.tensor, values("f32", count, 7))
    else:
        time.sleep(0.2)  # Seat 1 waits in the collective by now, and so do both workers.
    if seat < 2:
        assert group.send(message.pointer, count, code("f32"), seat + 1, 7).wait(WAIT_S)
    ticket = ticket or reduction.start(group)
    assert ticket.wait(WAIT_S)
    reduction.check()
    return time.monotonic() - begun


@pytest.mark.parametrize("count", [64, 100_000])
@pytest.mark.parametrize("team", [*FAR, "3-shm"], indirect=True)
def test_messages_pass_a_collective_that_waits(world: Formation, count: int) -> None:
    world.all(relay, count)


def other_group(rank: Rank, name: str, other: str) -> None:
    """One thread waits in `name`, where nobody comes yet, while another makes calls in `other`."""
    seat = rank.seats[name][0]
    came = threading.Event()

    def waits() -> None:
        if seat == 0:
            assert came.wait(WAIT_S)
        perform(rank, name, [Call("all_reduce", "f32", 1000, seed=1)])

    def works() -> None:
        perform(rank, other, [Call(kind, "f32", 5000, root=1, seed=2) for kind in KINDS])
        came.set()

    in_threads([waits, works])


@pytest.mark.parametrize("team", FAR, indirect=True)
def test_a_group_that_waits_leaves_others_alone(world: Formation) -> None:
    other = Formation(world.team, "other")
    other.advance()
    world.all(other_group, "other")


def resend(rank: Rank, name: str, rounds: int, count: int) -> None:
    """Large messages both ways, each begun while its link may be changing hands."""
    for turn in range(rounds):
        there = Message(0, 1, turn % 3, "f32", count, turn)
        back = Message(1, 0, turn % 3, "f32", count // 2, turn + 1)
        exchange(rank, name, [there, back], turn)
        perform(rank, name, [Call("all_reduce", "f32", 10, seed=turn)])


def delay(rank: Rank, name: str, seed: int, most_us: int) -> None:
    _native.delay_points(seed + 1000 * rank.seats[name][0], most_us)


@pytest.mark.parametrize("team", on("2-tcp"), indirect=True)
def test_what_waits_to_be_written_is_written(world: Formation) -> None:
    """Room for writing is never waited for by nobody, whoever fills the link at that moment."""
    world.all(delay, 5, 2000)
    try:
        world.all(resend, 6, 2_000_000)
    finally:
        world.all(delay, 0, 0)


def mixture(rank: Rank, names: list[str], seed: int, rounds: int) -> int:
    """In each group a thread that makes calls, and one that exchanges messages; all by the seed."""

    def calls(name: str) -> Any:
        chance = random.Random(f"{seed} {name}")
        kinds = [chance.choice(KINDS) for _ in range(rounds)]
        sizes = [chance.choice([0, 1, 50, 3000, 200_000]) for _ in range(rounds)]
        return [
            Call(kind, "f32", count, root=chance.randrange(rank.seats[name][1]), seed=seed + turn)
            for turn, (kind, count) in enumerate(zip(kinds, sizes, strict=True))
        ]

    def messages(name: str) -> list[Message]:
        chance, size = random.Random(f"{seed} {name} messages"), rank.seats[name][1]
        found = []
        for turn in range(3 * rounds):
            sender = chance.randrange(size)
            receiver = (sender + chance.randrange(1, size)) % size
            count = chance.choice([0, 10, 5000, 100_000])
            found.append(Message(sender, receiver, turn % 4, "f32", count, turn))
        return found

    jobs = [lambda name=name: perform(rank, name, calls(name)) for name in names]
    jobs += [lambda name=name: exchange(rank, name, messages(name), seed) for name in names]
    in_threads(jobs)
    return len(jobs)


def play(world: Formation, seeds: range) -> None:
    """Everything at once, with delays wherever threads or seats depend on each other."""
    others = [Formation(world.team, name) for name in ("first", "second")]
    for other in others:
        other.advance()
    names = ["world", "first", "second"]
    for seed in seeds:
        world.all(delay, seed, 400)
        try:
            world.team.all(mixture, names, seed, 6)
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure
    world.all(delay, 0, 0)


@pytest.mark.parametrize("team", on("3-pairs", "3-tcp", "3-shm"), indirect=True)
def test_schedules_by_chance(world: Formation) -> None:
    first = int(os.environ.get("TRAINMOVER_TEST_SEED", "1"), 16) % 1_000_000
    play(world, range(first, first + 4))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("team", on("3-pairs", "4-crossed", "5-lone", "4-tcp"), indirect=True)
def test_schedules_by_chance_for_long(world: Formation) -> None:
    until = time.monotonic() + float(os.environ.get("TRAINMOVER_SOAK_S", "300"))
    seed = 0
    while time.monotonic() < until:
        play(world, range(seed, seed + 10))
        seed += 10


def calls_in_a_row(rank: Rank, name: str, rounds: int) -> tuple[int, float]:
    """How often the endpoint's thread was woken meanwhile, and in how many seconds."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    # It names itself as it begins, which may be a while after it was made.
    until(lambda: _threads("tmc-progress"), "the endpoint's thread")
    (thread,) = _threads("tmc-progress")
    reduction = staged(Call("all_reduce", "f32", 2, seed=1), seat, size)
    before, begun = _switches(thread), time.monotonic()
    for _ in range(rounds):
        reduction.start(group)
    return _switches(thread) - before, time.monotonic() - begun


def _threads(name: str) -> list[Path]:
    found = []
    for comm in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # Another thread has ended meanwhile.
            if comm.read_text().strip() == name:
                found.append(comm.parent)
    return found


def _switches(thread: Path) -> int:
    found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (thread / "status").read_text(), re.M)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("team", ["2-tcp"], indirect=True)
def test_between_calls_in_a_row_nobody_else_is_woken(world: Formation) -> None:
    """What comes in the moment between two calls is left to the next one. A timer looks after the
    links, four times a millisecond, and whoever is held up between two calls may find it has."""
    for woken, took_s in world.all(calls_in_a_row, 3000):
        assert woken < 8500 * took_s + 100
