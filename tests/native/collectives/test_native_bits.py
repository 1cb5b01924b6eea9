"""The same bits on every transport, in every mix, and after every history."""

import time
from collections.abc import Callable, Sequence
from random import Random

import pytest
import xxhash
from native_calls import Call, staged
from native_data import raw
from native_history import History
from native_team import Formation, Rank, Team
from native_topologies import STAGES, of_size

CALLS = [
    Call(kind, dtype, count, op, seed=count + 7)
    for kind in ("all_reduce", "reduce_scatter", "reduce")
    for dtype, count in (("f32", 66_000), ("bf16", 1000), ("f16", 1), ("f64", 20_000), ("c64", 99))
    for op in ("sum", "avg", "product")
]


def digest(rank: Rank, name: str, calls: list[Call]) -> str:
    """Of all bytes that came out on this seat."""
    seen = xxhash.xxh3_128()
    for call in calls:
        one = staged(call, *rank.seats[name])
        one.start(rank.groups[name])
        for held, _ in one.expected:
            seen.update(raw(held.tensor).numpy().data)
    return seen.hexdigest()


@pytest.mark.turns(8)
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_every_mix_of_transports_gives_the_same_bits(
    make_team: Callable[[Sequence[str]], Team], size: int
) -> None:
    seen = set()
    for name in of_size(size):
        world = Formation(make_team(STAGES[name]), "world")
        world.advance()
        seen.add(tuple(world.all(digest, CALLS)))
    assert len(seen) == 1


def live(team: Team, chance: Random, changes: int) -> None:
    history = History(team, chance)
    history.begin()
    history.check()
    for _ in range(changes):
        history.change()
        history.check()
    history.end()


HOSTS = ["ab", "aa", "aab", "abc", "aaa", "aabb", "abab", "abcd", "aaaa", "aabbc"]


@pytest.mark.turns(8)
@pytest.mark.parametrize("seed", range(20))
def test_sums_are_the_same_after_any_history(
    make_team: Callable[[Sequence[str]], Team], seed: int
) -> None:
    live(make_team(HOSTS[seed % len(HOSTS)]), Random(seed), changes=3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("hosts", HOSTS)
def test_sums_are_the_same_after_any_of_many_histories(
    make_team: Callable[[Sequence[str]], Team], hosts: str
) -> None:
    seed = time.time_ns()
    for turn in range(200):
        team = make_team(hosts)
        try:
            live(team, Random(seed + turn), changes=5)
        except AssertionError as error:
            raise AssertionError(f"history of seed {seed + turn} on {hosts}") from error
        team.close()
