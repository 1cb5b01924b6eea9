"""Many groups in one process: over the same members, over parts of them, used at once."""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_calls import PROPERTY, Call, any_calls
from native_team import Formation, Rank, Team, links_by_peer
from native_threads import Part, perform_beside, perform_in_turn
from native_topologies import of_size, on


def run_parts(groups: list[Formation], calls: list[list[Call]], program: Any) -> None:
    """`calls[i]` on `groups[i]`, by every member of it."""
    parts: dict[str, list[Part]] = {}
    players = {p.name: p for group in groups for p in group.players}
    for group, some in zip(groups, calls, strict=True):
        for player in group.players:
            parts.setdefault(player.name, []).append((group.name, some))
    groups[0].team.each([(players[name], (some,)) for name, some in parts.items()], program)


def formed(team: Team, name: str, members: Sequence[int]) -> Formation:
    formation = Formation(team, name, [team.players[member] for member in members])
    formation.advance()
    return formation


@pytest.mark.parametrize("team", on("2-shm", "3-pairs", "4-tcp"), indirect=True)
@given(data=st.data())
@settings(PROPERTY, max_examples=4)
def test_groups_over_the_same_members_used_at_once(team: Team, data: st.DataObject) -> None:
    groups = _kept(team, lambda: [formed(team, f"g{i}", range(team.size)) for i in range(6)])
    calls = [data.draw(any_calls(team.size, 4)) for _ in groups]
    run_parts(groups, calls, perform_beside)


@pytest.mark.parametrize("team", of_size(4), indirect=True)
@given(data=st.data())
@settings(PROPERTY, max_examples=4)
def test_overlapping_groups_used_at_once(team: Team, data: st.DataObject) -> None:
    def build() -> list[Formation]:
        some = [members for size in (2, 3, 4) for members in combinations(range(4), size)]
        return [formed(team, f"g{members}", members) for members in some]

    groups = _kept(team, build)
    calls = [data.draw(any_calls(group.size, 2)) for group in groups]
    run_parts(groups, calls, data.draw(st.sampled_from([perform_beside, perform_in_turn])))


_FORMED: dict[int, list[Formation]] = {}


def _kept(team: Team, build: Callable[[], list[Formation]]) -> list[Formation]:
    """The same groups for every example of one test."""
    if id(team) not in _FORMED or _FORMED[id(team)][0].team is not team:
        _FORMED.clear()
        _FORMED[id(team)] = build()
    return _FORMED[id(team)]


@pytest.mark.parametrize("team", of_size(3), indirect=True)
def test_groups_share_the_links_of_their_members(team: Team) -> None:
    formed(team, "first", range(3))
    before = team.all(links_by_peer)
    assert [len(links) for links in before] == [2] * 3
    formed(team, "second", range(3))
    formed(team, "turned", [2, 0])
    assert team.all(links_by_peer) == before


def kinds(rank: Rank) -> list[str]:
    return sorted(kind for kind, _ in links_by_peer(rank).values())


def test_one_machine_speaks_by_shared_memory_and_others_by_tcp(
    make_team: Callable[[Sequence[str]], Team],
) -> None:
    team = make_team("aab")
    formed(team, "world", range(3))
    assert team.all(kinds) == [["shm", "tcp"], ["shm", "tcp"], ["tcp", "tcp"]]


@pytest.mark.turns(8)
def test_sixty_four_seats_on_one_machine(make_team: Callable[[Sequence[str]], Team]) -> None:
    world = formed(make_team("a" * 64), "world", range(64))
    calls = [
        Call("all_reduce", "bf16", 1000, profile="bits"),
        Call("all_gather", "i32", 3),
        Call("all_to_all", "u8", 5),
        Call("broadcast", "f64", 100, root=63),
        Call("reduce_scatter", "f32", 7),
        Call("barrier"),
    ]
    run_parts([world], [calls], perform_in_turn)
