"""Whoever is done may go: a seat that leaves right after its last call breaks nobody else's."""

import os

import pytest
from native_calls import KINDS, Call, perform
from native_outcomes import Outcome, outcome
from native_team import Formation, Rank
from native_topologies import on

mixes = pytest.mark.parametrize("team", on("2-shm", "2-tcp", "3-crossed", "4-pairs"), indirect=True)


def last_call(kind: str, root: int) -> list[Call]:
    """A small one, so that no seat need wait for the others, and a large one."""
    return [Call(kind, count=10, root=root), Call(kind, count=300_000 // (1 + root), root=root)]


def perform_and_close(rank: Rank, name: str, calls: list[Call]) -> None:
    perform(rank, name, calls)
    rank.close()


@mixes
@pytest.mark.parametrize("kind", KINDS)
def test_closing_right_after_the_last_call(world: Formation, kind: str) -> None:
    for turn in range(4):
        world.all(perform_and_close, last_call(kind, turn % world.size))
        world.epoch = 0
        world.advance()


def perform_and_exit(rank: Rank, name: str, calls: list[Call]) -> None:
    perform(rank, name, calls)
    os._exit(0)


@pytest.mark.turns(8)
@mixes
@pytest.mark.parametrize("kind", KINDS)
def test_ending_right_after_the_last_call(world: Formation, kind: str) -> None:
    """The others, who are in the same call or behind it, complete it."""
    leaver, calls = KINDS.index(kind) % world.size, last_call(kind, KINDS.index(kind))
    for seat, player in enumerate(world.players):
        player.start(perform_and_exit if seat == leaver else perform, "world", calls)
    world.team.finish(world.others(leaver))
    assert world.players[leaver].await_end() == 0
    world.refill(leaver)
    world.all(perform, calls)


def barrier_of(rank: Rank, name: str, epoch: int) -> Outcome:
    return outcome(lambda: rank.groups[name].barrier(False, epoch=epoch))


@pytest.mark.parametrize("team", on("2-shm", "2-tcp"), indirect=True)
def test_a_call_can_name_the_epoch_it_is_meant_for(world: Formation) -> None:
    world.advance()
    assert [ended.kind for ended in world.all(barrier_of, 1)] == ["Aborted"] * 2
    assert [ended.kind for ended in world.all(barrier_of, 3)] == ["Aborted"] * 2
    assert [ended.kind for ended in world.all(barrier_of, 2)] == ["ok"] * 2
