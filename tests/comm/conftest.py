"""Fixtures of the comm tests."""

from collections.abc import Iterator

import pytest
from comm_ranks import Ranks


@pytest.fixture(params=["gloo", "native"])
def comm(request: pytest.FixtureRequest) -> str:
    """Every communicator in turn."""
    return str(request.param)


@pytest.fixture
def ranks(request: pytest.FixtureRequest, comm: str) -> Iterator[Ranks]:
    """Four ranks, or as many as `@pytest.mark.parametrize("ranks", [n], indirect=True)` says."""
    team = Ranks(getattr(request, "param", 4), comm)
    yield team
    team.close()
