"""Many seats: few links until more are needed, little memory for each, no end that is not heard."""

from collections.abc import Callable, Iterator, Sequence

import pytest
from native_crowd import (
    Crowd,
    abort_all,
    anonymous_kib,
    close_all,
    give_all,
    sum_all,
    sum_ends,
)
from native_team import Team

LINK_KIB_MOST = 8
# Far fewer than one for every other seat: what the tree and the row of hosts take.
KNOWN_MOST = 45

Make = Callable[[int, int, int], Crowd]  # processes, seats, seats a host


@pytest.fixture
def make_crowd(
    make_team: Callable[[Sequence[str]], Team], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    crowds: list[Crowd] = []

    def make(processes: int, seats: int, per_host: int) -> Crowd:
        team = make_team([f"process {number}" for number in range(processes)])
        crowds.append(Crowd(team, seats, per_host, monkeypatch))
        return crowds[-1]

    yield make
    for crowd in crowds:
        crowd.team.all(close_all)


def prepare_and_sum(crowd: Crowd) -> None:
    crowd.enter()
    known = crowd.links()
    assert max(known) <= KNOWN_MOST + crowd.per_host
    for count in (1, 100):
        crowd.team.all(sum_all, crowd.seats, count)
    assert crowd.links() == known
    print(f"{crowd.seats} seats, {crowd.per_host} a host: {sum(known)} ends of links")


@pytest.mark.parametrize("per_host", [1, 8])
def test_many_seats_prepare_and_sum_over_few_links(make_crowd: Make, per_host: int) -> None:
    prepare_and_sum(make_crowd(4, 96, per_host))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("per_host", [1, 16])
def test_a_thousand_seats_prepare_and_sum(make_crowd: Make, per_host: int) -> None:
    prepare_and_sum(make_crowd(16, 1024, per_host))


def test_a_link_holds_little(make_crowd: Make) -> None:
    """Each pair of seats gets one, by the first call that needs it."""
    crowd = make_crowd(2, 96, 1)
    crowd.enter()
    crowd.team.all(sum_all, crowd.seats, 1)
    links, before = sum(crowd.links()), sum(crowd.team.all(anonymous_kib))
    crowd.team.all(give_all, crowd.seats)
    assert crowd.links() == [crowd.seats - 1] * crowd.seats
    opened = sum(crowd.links()) - links
    spent = sum(crowd.team.all(anonymous_kib)) - before
    print(f"{opened} ends of links opened: {spent / opened:.2f} KiB each")
    assert spent / opened <= LINK_KIB_MOST


def killed_and_replaced(crowd: Crowd, victim: int) -> None:
    crowd.enter()
    all_pairs = crowd.seats < 100
    crowd.team.all(give_all, crowd.seats) if all_pairs else crowd.team.all(sum_all, crowd.seats, 1)
    others = [player for at, player in enumerate(crowd.team.players) if at != victim]
    for player in others:
        player.start(sum_ends)
    crowd.team.players[victim].end()
    ended = [one for some in crowd.team.finish(others) for one in some]
    assert {one.kind for one in ended} == {"PeerLost"}
    crowd.team.each([(player, ()) for player in others], abort_all)
    crowd.replace(victim)
    figures = crowd.enter()
    for seat, (opened, kept) in enumerate(figures):
        if seat // crowd.each != victim and all_pairs:
            assert (opened, kept) == (crowd.each, crowd.seats - 1 - crowd.each)
    crowd.team.all(sum_all, crowd.seats, 100)


@pytest.mark.parametrize("per_host", [1, 8])
def test_seats_that_are_killed_are_missed_by_all(make_crowd: Make, per_host: int) -> None:
    """Also by those who have no link to them; who comes instead has the links that were used."""
    killed_and_replaced(make_crowd(4, 96, per_host), 2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_of_a_thousand_seats_some_are_killed(make_crowd: Make) -> None:
    killed_and_replaced(make_crowd(16, 1024, 16), 7)
