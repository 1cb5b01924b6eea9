"""Two phases: prepare the next membership while this one works, then change over, or do not."""

import threading
from typing import Any

import pytest
from native_calls import Call, perform
from native_data import blank, code, op_code
from native_outcomes import (
    Outcome,
    outcome,
    prepare_beside,
    prepared,
    try_calls,
    try_enter,
    try_prepare,
    try_switch,
)
from native_team import (
    Formation,
    Player,
    Rank,
    Team,
    links_by_peer,
    open_seat,
    prepare,
    switch,
)
from native_topologies import of_size, on

three = pytest.mark.parametrize("team", of_size(3), indirect=True)
CHECK = [Call("all_reduce", count=70_000), Call("all_to_all", "u8"), Call("barrier")]


def train(rank: Rank, name: str) -> int:
    """Collectives until some seat has been told to stop; all seats stop after the same one."""
    group, rounds = rank.groups[name], 0
    told = rank.shelf.setdefault("told", threading.Event())
    votes = blank("i32", 1)
    while True:
        perform(rank, name, [Call("all_reduce", count=20_000, seed=rounds)])
        votes.tensor[0] = int(told.is_set())
        group.all_reduce(votes.pointer, 1, code("i32"), op_code("max"), False)
        rounds += 1
        rank.shelf["rounds"] = rounds
        if votes.tensor[0]:
            told.clear()
            return rounds


def stop_training(rank: Rank, name: str) -> None:
    rank.shelf["told"].set()


def rounds_so_far(rank: Rank, name: str) -> int:
    return int(rank.shelf.get("rounds", 0))


def await_rounds(world: Formation, player: Player, more: int) -> None:
    """Until the rank has done some more rounds of its training."""
    target = player.tell(rounds_so_far, "world") + more
    world.team.until(lambda: player.tell(rounds_so_far, "world") >= target, "more rounds")


def seat_newcomer(world: Formation, seat: int) -> tuple[Player, list[bytes]]:
    """A new process for the seat: it has a card and no more. The view that holds it."""
    newcomer = world.team.replace(seat)
    world.players[seat] = newcomer
    return newcomer, world.cards()


def take_over(world: Formation, epoch: int) -> list[dict[str, int]]:
    world.epoch = epoch
    return world.all(switch, epoch)


@pytest.mark.turns(8)
@three
def test_collectives_go_on_while_the_next_epoch_is_prepared(world: Formation) -> None:
    old = list(world.players)
    world.start(train)
    newcomer, cards = _cards_beside(world, 2)
    for player in old[:2]:
        player.tell(prepare_beside, "world", 2, cards)
    await_rounds(world, old[0], 3)
    newcomer.ask(prepare, "world", 2, cards)
    assert [p.tell(prepared, "world") for p in old[:2]] == [Outcome("ok")] * 2
    await_rounds(world, old[0], 3)
    old[0].tell(stop_training, "world")
    assert len(set(world.team.finish(old))) == 1
    world.players[2] = newcomer
    figures = take_over(world, 2)
    assert [(f["kept"], f["opened"], f["closed"]) for f in figures] == [(1, 1, 1)] * 2 + [(0, 2, 0)]
    assert all(f["prepare_ns"] > 0 and f["switchover_ns"] > 0 for f in figures)
    world.all(perform, CHECK)


def _cards_beside(world: Formation, seat: int) -> tuple[Player, list[bytes]]:
    """As `seat_newcomer`, while the main ears of all are busy. `world.players` is left as it is."""
    newcomer = world.team.newcomer(world.team.hosts[seat])
    players = [newcomer if i == seat else p for i, p in enumerate(world.players)]
    return newcomer, [p.tell(open_seat, "world", i, world.size) for i, p in enumerate(players)]


@three
def test_a_discarded_preparation_ends_at_once_and_harms_nobody(world: Formation) -> None:
    old = list(world.players)
    world.start(train)
    newcomer, cards = _cards_beside(world, 1)
    newcomer.stop()
    for player in (old[0], old[2]):
        player.tell(prepare_beside, "world", 2, cards)
    await_rounds(world, old[0], 2)
    for player in (old[0], old[2]):
        player.tell(discard, "world", 2)
        assert player.tell(prepared, "world").kind == "Aborted"
    await_rounds(world, old[0], 2)
    old[2].tell(stop_training, "world")
    world.team.finish(old)
    world.all(perform, CHECK)


def discard(rank: Rank, name: str, epoch: int) -> None:
    rank.groups[name].discard(epoch)


@three
def test_the_epoch_after_a_discarded_one_is_taken(world: Formation) -> None:
    wrong, cards = _cards_beside(world, 0)
    for player in (*world.players[1:], wrong):
        player.start(prepare, "world", 2, cards)
    world.team.finish([*world.players[1:], wrong])
    for player in world.players[1:]:
        player.ask(discard, "world", 2)
    world.all(perform, CHECK)
    wrong.end()
    _, cards = seat_newcomer(world, 0)
    world.all(prepare, 3, cards)
    take_over(world, 3)
    world.all(perform, CHECK)


@three
def test_preparing_twice_is_preparing_once(world: Formation) -> None:
    _, cards = seat_newcomer(world, 2)
    world.all(prepare, 2, cards)
    links = world.team.all(links_by_peer)
    world.all(prepare, 2, cards)
    assert world.team.all(links_by_peer) == links
    take_over(world, 2)
    world.all(perform, CHECK)


@three
def test_a_prepared_epoch_does_not_touch_the_old_one(world: Formation) -> None:
    leaver = world.players[2]
    _, cards = seat_newcomer(world, 2)
    world.all(prepare, 2, cards)
    before = [*world.players[:2], leaver]
    world.team.each([(p, ("world", CHECK)) for p in before], perform)
    take_over(world, 2)
    world.all(perform, CHECK)


@three
def test_a_deadline_names_the_seat_that_did_not_come(world: Formation) -> None:
    newcomer, cards = seat_newcomer(world, 1)
    newcomer.stop()
    for player in (world.players[0], world.players[2]):
        ended = player.ask(try_prepare, "world", 2, cards, 0.3)
        assert ended.kind == "TimedOut"
        assert "1" in ended.text
        assert "seat" in ended.text


@three
def test_a_newcomer_that_dies_in_phase_one_harms_nobody(world: Formation) -> None:
    leaver = world.players[1]
    newcomer, cards = seat_newcomer(world, 1)
    newcomer.end()
    for player in (world.players[0], world.players[2]):
        assert player.ask(try_prepare, "world", 2, cards, 0.5).kind in ("PeerLost", "TimedOut")
        player.ask(discard, "world", 2)
    world.players[1] = leaver
    world.all(perform, CHECK)
    world.epoch = 2
    assert [(f["kept"], f["opened"]) for f in world.advance()] == [(2, 0)] * 3
    world.all(perform, CHECK)


@pytest.mark.turns(8)
@pytest.mark.parametrize("team", on("2-shm", "3-tcp", "4-crossed", "5-pairs"), indirect=True)
def test_figures_of_each_switchover(world: Formation) -> None:
    size = world.size
    for turn in range(6):
        newcomers = {turn % size, (turn // 2) % size}
        for seat in newcomers:
            seat_newcomer(world, seat)
        for seat, figures in enumerate(world.advance()):
            opened = size - 1 if seat in newcomers else len(newcomers)
            closed = 0 if seat in newcomers else len(newcomers)
            assert figures["opened"] == opened
            assert figures["kept"] == size - 1 - opened
            assert figures["closed"] == closed
        world.all(perform, CHECK)


@three
def test_the_same_members_go_on_without_a_new_link(world: Formation) -> None:
    links = world.team.all(links_by_peer)
    for _ in range(5):
        figures = world.advance()
        assert [(f["kept"], f["opened"], f["closed"]) for f in figures] == [(2, 0, 0)] * 3
        world.all(perform, CHECK)
    assert world.team.all(links_by_peer) == links


@pytest.mark.parametrize("team", on("2-tcp"), indirect=True)
def test_steps_out_of_order_are_refused(team: Team) -> None:
    world = Formation(team, "world")
    cards = world.cards()
    assert {o.kind for o in world.all(try_calls, CHECK)} == {"Refused"}
    assert {o.kind for o in world.all(try_switch, 1)} == {"Refused"}
    world.all(prepare, 1, cards)
    assert {o.kind for o in world.all(try_calls, CHECK)} == {"Refused"}
    assert {o.kind for o in world.all(try_switch, 2)} == {"Refused"}
    take_over(world, 1)
    assert world.all(epoch_of) == [1, 1]
    world.all(perform, CHECK)
    assert {o.kind for o in world.all(try_enter, 1, cards)} <= {"Refused", "ok"}
    world.all(perform, CHECK)


def epoch_of(rank: Rank, name: str) -> Any:
    return rank.groups[name].epoch


@pytest.mark.parametrize("team", on("2-shm", "2-tcp"), indirect=True)
def test_an_aborted_group_refuses_until_the_next_epoch(world: Formation) -> None:
    world.all(abort_with_reason)
    for ended in world.all(try_calls, CHECK):
        assert ended.kind == "Aborted"
        assert "coffee" in ended.text
    world.advance()
    world.all(perform, CHECK)


def abort_with_reason(rank: Rank, name: str) -> None:
    group = rank.groups[name]
    assert group.broken is None
    group.abort("coffee")
    assert "coffee" in group.broken


@pytest.mark.parametrize("team", on("2-shm", "2-tcp"), indirect=True)
def test_a_closed_group_answers_clearly(world: Formation) -> None:
    answers = world.all(use_after_close)
    for ended in [one for answer in answers for one in answer]:
        assert ended.kind in ("Aborted", "Refused")


def use_after_close(rank: Rank, name: str) -> list[Outcome]:
    group = rank.groups.pop(name)
    group.close()
    group.close()
    group.abort("again")
    return [
        outcome(lambda: group.barrier(False)),
        outcome(lambda: group.prepare(2, [], 1.0)),
        outcome(lambda: group.switchover(2)),
    ]
