"""Fixtures of the native tests: teams of rank processes, and the machines they stand on."""

from collections.abc import Callable, Iterator, Sequence

import pytest
from native_team import Formation, Team
from native_topologies import STAGES


@pytest.fixture
def make_team() -> Iterator[Callable[[Sequence[str]], Team]]:
    """Makes teams; every process of theirs is gone after the test."""
    teams: list[Team] = []

    def make(hosts: Sequence[str]) -> Team:
        teams.append(Team(hosts))
        return teams[-1]

    yield make
    for team in teams:
        team.close()


@pytest.fixture(scope="session")
def resting() -> Iterator[dict[str, Team]]:
    """Teams by stage, whose processes have left every group and wait for the next test."""
    teams: dict[str, Team] = {}
    yield teams
    for team in teams.values():
        team.close()


@pytest.fixture
def team(resting: dict[str, Team], request: pytest.FixtureRequest) -> Iterator[Team]:
    """Players on the machines of a stage: `parametrize("team", [...], indirect=True)`.

    A team that lost or gained nobody serves the next test on the same stage, too.
    """
    stage = request.param
    team = resting.pop(stage, None) or Team(STAGES[stage])
    yield team
    if team.rest():
        resting[stage] = team
    else:
        team.close()


@pytest.fixture
def world(team: Team) -> Formation:
    """A group over the whole team, in epoch 1."""
    formation = Formation(team, "world")
    formation.advance()
    return formation
