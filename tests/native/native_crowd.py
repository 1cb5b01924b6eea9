"""Light seats: many endpoints in each of a few processes, each with a thread while it calls."""

import ctypes
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import native_team
import pytest
from native_data import buffer, code, op_code, values
from native_outcomes import Outcome, outcome
from native_team import Player, Rank, Team
from native_threads import in_threads

from trainmover import _native

WAIT_S = 600.0
NAME = "crowd"


def allow_many_files() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def take_seats(rank: Rank, first: int, count: int, size: int, per_host: int) -> list[bytes]:
    allow_many_files()
    cards = []
    for seat in range(first, first + count):
        host = f"host {seat // per_host}"
        endpoint = _native.Endpoint(rank.token, host, folder=rank.folder)
        group = endpoint.group(NAME, seat, size)
        group.set_timeout(WAIT_S)
        rank.shelf[f"seat {seat}"] = (seat, endpoint, group)
        cards.append(bytes(group.card()))
    return cards


def own_cards(rank: Rank) -> list[bytes]:
    return [bytes(group.card()) for _, _, group in rank.shelf.values()]


def for_each(rank: Rank, act: Callable[[int, Any], None]) -> None:
    """`act` for each seat, all at once."""
    in_threads([lambda s=seat, g=group: act(s, g) for seat, _, group in rank.shelf.values()])


def prepare_all(rank: Rank, epoch: int, cards: list[bytes]) -> None:
    for_each(rank, lambda _, group: group.prepare(epoch, cards, WAIT_S))


def switch_all(rank: Rank, epoch: int) -> list[tuple[int, int]]:
    """By seat: links that were opened, and kept."""
    figures: dict[int, tuple[int, int]] = {}

    def switch(seat: int, group: Any) -> None:
        done = group.switchover(epoch)
        figures[seat] = done["opened"], done["kept"]

    for_each(rank, switch)
    return [figures[seat] for seat in sorted(figures)]


def sum_all(rank: Rank, size: int, count: int) -> None:
    def add(seat: int, group: Any) -> None:
        held = buffer(values("i64", count, 1))
        held.tensor.fill_(seat)
        group.all_reduce(held.pointer, count, code("i64"), op_code("sum"), False)
        assert bool((held.tensor == size * (size - 1) // 2).all())

    for_each(rank, add)


def sum_ends(rank: Rank) -> list[Outcome]:
    """How a sum ends that not all make."""
    ended: list[Outcome] = []

    def add(_: int, group: Any) -> None:
        held = buffer(values("i64", 1, 1))
        call = (held.pointer, 1, code("i64"), op_code("sum"), False)
        ended.append(outcome(lambda: group.all_reduce(*call)))

    for_each(rank, add)
    return ended


def give_all(rank: Rank, size: int) -> None:
    """A number from every seat for every other one: a message for each pair."""

    def give(seat: int, group: Any) -> None:
        numbers, total = buffer(values("i64", size, 1)), buffer(values("i64", 1, 1))
        numbers.tensor.fill_(seat)
        places = [numbers.pointer + 8 * place for place in range(size)]
        group.reduce_scatter(places, total.pointer, 1, code("i64"), op_code("sum"), False)
        assert int(total.tensor[0]) == size * (size - 1) // 2

    for_each(rank, give)


def abort_all(rank: Rank) -> None:
    for _, _, group in rank.shelf.values():
        group.abort("a test")


def links(rank: Rank) -> list[int]:
    """By seat: how many are open."""
    return [len(endpoint.links()) for _, endpoint, _ in rank.shelf.values()]


def anonymous_kib(rank: Rank) -> int:
    """Memory that nothing but this process holds, after what is free was given back."""
    ctypes.CDLL(None).malloc_trim(0)
    told = Path("/proc/self/smaps_rollup").read_text()
    return int(told.split("Anonymous:")[1].split()[0])


def close_all(rank: Rank) -> None:
    for _, endpoint, _ in rank.shelf.values():
        endpoint.close()
    rank.shelf.clear()


class Crowd:
    """One group over many light seats, as many in each process."""

    def __init__(self, team: Team, seats: int, per_host: int, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(native_team, "PATIENCE_S", WAIT_S)
        self.team, self.seats, self.per_host = team, seats, per_host
        self.each = seats // team.size
        self.epoch = 0
        jobs = [(player, self._place(at)) for at, player in enumerate(team.players)]
        self.cards = [card for cards in team.each(jobs, take_seats) for card in cards]

    def _place(self, at: int) -> tuple[int, int, int, int]:
        return at * self.each, self.each, self.seats, self.per_host

    def enter(self) -> list[tuple[int, int]]:
        """The next epoch; by seat the links that were opened, and kept."""
        self.epoch += 1
        self.team.all(prepare_all, self.epoch, self.cards)
        return [one for some in self.team.all(switch_all, self.epoch) for one in some]

    def replace(self, at: int) -> Player:
        """Another process for its seats. It is killed, if it lives."""
        self.team.players[at].end()
        player = self.team.replace(at)
        fresh = player.ask(take_seats, *self._place(at))
        self.cards = [
            card
            for place, other in enumerate(self.team.players)
            for card in (fresh if place == at else other.ask(own_cards))
        ]
        return player

    def links(self) -> list[int]:
        return [number for some in self.team.all(links) for number in some]
