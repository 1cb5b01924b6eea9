"""What is opened is closed again: descriptors, maps, threads, memory; forks; the process's end."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from native_calls import Call, perform
from native_outcomes import Outcome, outcome, until_broken
from native_team import Formation, Rank, Team
from native_topologies import on

CHECK = [Call("all_reduce", count=50_000, seed=3), Call("all_to_all", "u8"), Call("barrier")]
two = pytest.mark.parametrize("team", on("2-shm", "2-tcp"), indirect=True)
mixes = pytest.mark.parametrize("team", on("2-shm", "2-tcp", "3-pairs"), indirect=True)


def holdings(rank: Rank) -> dict[str, int]:
    """What the process holds of the system's."""
    gc.collect()
    inside = rank.endpoint.stats()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "maps": len(Path("/proc/self/maps").read_text().splitlines()),
        "threads": len(os.listdir("/proc/self/task")),
        "arena_bytes": inside["arena_bytes"],
        "groups": inside["groups"],
    }


def settle(rank: Rank) -> dict[str, int]:
    """The holdings once two looks in a row agree: other ends close in their own time."""
    before = holdings(rank)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        time.sleep(0.05)
        now = holdings(rank)
        if now == before:
            break
        before = now
    return before


def no_more(before: list[dict[str, int]], after: list[dict[str, int]]) -> None:
    """Nothing has grown; the maps may by what an allocator needs once."""
    slack = {"maps": 12}
    for held, now in zip(before, after, strict=True):
        grown = {what: n for what, n in now.items() if n > held[what] + slack.get(what, 0)}
        assert not grown, (held, now)


def drop(rank: Rank, name: str) -> None:
    rank.groups.pop(name).close()


def come_and_go(team: Team, times: int) -> None:
    for turn in range(times):
        formation = Formation(team, f"g{turn}")
        formation.advance()
        if turn % 10 == 0:
            formation.all(perform, CHECK)
        formation.all(drop)


def groups_leak_nothing(team: Team, times: int) -> None:
    held = Formation(team, "held")
    held.advance()
    come_and_go(team, 40)
    before = team.all(settle)
    come_and_go(team, times)
    no_more(before, team.all(settle))
    held.all(perform, CHECK)


@mixes
def test_groups_leave_nothing_behind(team: Team) -> None:
    groups_leak_nothing(team, 150)


@pytest.mark.soak
@mixes
def test_groups_leave_nothing_behind_at_length(team: Team) -> None:
    groups_leak_nothing(team, 10_000)


def stayers_leak_nothing(world: Formation, times: int) -> None:
    def switch_on(turns: int) -> None:
        for turn in range(turns):
            old = world.players[1]
            world.refill(1)
            old.close()
            if turn % 5 == 0:
                world.all(perform, CHECK)

    switch_on(10)
    stayers = world.others(1)
    before = [player.ask(settle) for player in stayers]
    switch_on(times)
    no_more(before, [player.ask(settle) for player in stayers])


@pytest.mark.turns(8)
@mixes
def test_switchovers_leave_nothing_behind(world: Formation) -> None:
    stayers_leak_nothing(world, 20)


@pytest.mark.soak
@mixes
def test_switchovers_leave_nothing_behind_at_length(world: Formation) -> None:
    stayers_leak_nothing(world, 1000)


def open_and_close(rank: Rank, times: int) -> tuple[dict[str, int], dict[str, int]]:
    from trainmover import _native

    def some(turns: int) -> None:
        for _ in range(turns):
            endpoint = _native.Endpoint(rank.token, rank.host)
            endpoint.close()
            endpoint.close()

    some(10)
    before = holdings(rank)
    some(times)
    return before, holdings(rank)


@pytest.mark.parametrize("team", on("1-shm"), indirect=True)
def test_endpoints_leave_nothing_behind(team: Team) -> None:
    for before, after in team.all(open_and_close, 100):
        no_more([before], [after])


def fork_and_leave(rank: Rank, name: str) -> int:
    """A child that looks at the group and ends; the exit code says what it saw."""
    child = os.fork()
    if child == 0:
        told = outcome(lambda: rank.groups[name].barrier(False))
        os._exit(0 if told.kind == "Refused" and "fork" in told.text else 9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@two
def test_a_forked_child_is_told_and_harms_nobody(world: Formation) -> None:
    for _ in range(3):
        assert world.all(fork_and_leave) == [0, 0]
        world.all(perform, CHECK)


def fork_and_exit_in_order(rank: Rank, name: str) -> int:
    """A child that drops every object and closes what it can, as an interpreter's end does."""
    child = os.fork()
    if child == 0:
        rank.groups[name].close()
        rank.groups.clear()
        rank.endpoint.close()
        rank._endpoint = None
        gc.collect()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@two
def test_a_child_that_closes_everything_harms_nobody(world: Formation) -> None:
    assert world.all(fork_and_exit_in_order) == [0, 0]
    world.all(perform, CHECK)
    world.advance()
    world.all(perform, CHECK)


def fork_a_survivor(rank: Rank, name: str) -> int:
    """A child that lives on after its parent, until the test ends it."""
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    return child


@two
def test_a_death_is_seen_although_a_child_lives_on(world: Formation) -> None:
    child = world.players[1].ask(fork_a_survivor, "world")
    try:
        world.players[0].start(until_broken, "world", CHECK[0])
        world.players[1].end()
        assert world.players[0].finish().kind == "PeerLost"
        world.refill(1)
        world.all(perform, CHECK)
    finally:
        os.kill(child, signal.SIGKILL)


def fork_with_new_endpoint(rank: Rank) -> int:
    """A child may not open an endpoint of its own silently broken: it works or it is told."""
    from trainmover import _native

    child = os.fork()
    if child == 0:
        told = outcome(lambda: _native.Endpoint(rank.token, rank.host).close())
        os._exit(0 if told.kind in ("ok", "Refused") else 9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@two
def test_an_endpoint_in_a_forked_child(world: Formation) -> None:
    assert world.team.all(fork_with_new_endpoint) == [0, 0]
    world.all(perform, CHECK)


def close_endpoint(rank: Rank) -> Outcome:
    """Closes under a waiter of `completed`."""
    endpoint = rank.endpoint
    endpoint.close()
    endpoint.close()
    return outcome(lambda: endpoint.completed(5.0))


@two
def test_closing_an_endpoint_wakes_everybody(world: Formation) -> None:
    world.players[0].start(until_broken, "world", Call("barrier"))
    told = world.players[0].tell(close_endpoint)
    assert told.kind == "Aborted"
    assert world.players[0].finish().kind in ("Aborted", "Refused")
    assert world.players[1].ask(until_broken, "world", Call("barrier")).kind == "PeerLost"


ENDINGS = {
    "nothing": "pass",
    "an endpoint": "e = E(b'token', 'a')",
    "a group": "e = E(b'token', 'a'); g = e.group('g', 0, 1); c = g.card()",
    "a working group": """
        e = E(b'token', 'a'); g = e.group('g', 0, 1)
        g.prepare(1, [g.card()], 5); g.switchover(1); g.barrier(False)
    """,
    "a thread that waits": """
        import threading
        e = E(b'token', 'a'); g = e.group('g', 0, 1)
        g.prepare(1, [g.card()], 5); g.switchover(1)
        data = bytearray(64)
        import ctypes
        at = ctypes.addressof(ctypes.c_char.from_buffer(data))
        inside = threading.Event()
        def wait():
            inside.set()
            e.completed(60)
        threading.Thread(target=wait, daemon=True).start()
        inside.wait()
    """,
    "a thread in prepare": """
        import threading
        e, f = E(b'token', 'a'), E(b'token', 'a')
        g, h = e.group('g', 0, 2), f.group('g', 1, 2)
        cards = [g.card(), h.card()]
        f.close()
        threading.Thread(target=lambda: g.prepare(1, cards, 60), daemon=True).start()
    """,
}


@pytest.mark.parametrize("program", ENDINGS.values(), ids=ENDINGS.keys())
def test_the_interpreter_ends_cleanly_with_things_open(program: str) -> None:
    head = "from trainmover._native import Endpoint as E\n"
    source = head + textwrap.dedent(program)
    command = [sys.executable, "-X", "faulthandler", "-c", source]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "leak" not in ended.stderr, ended.stderr


def test_a_stopped_world_dies_with_its_test(
    make_team: Callable[[Sequence[str]], Team],
) -> None:
    """The harness itself: whatever state a rank is in, closing the team ends it."""
    team = make_team("ab")
    world = Formation(team, "world")
    world.advance()
    world.players[0].start(until_broken, "world", Call("barrier"))
    world.players[1].stop()
    team.close()
    ended: list[Any] = [player.code for player in world.players]
    assert ended == [-signal.SIGKILL] * 2
