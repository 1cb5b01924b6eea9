"""Fixtures of the comm tests."""

from collections.abc import Iterator

import pytest
from comm_ranks import Ranks


@pytest.fixture
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    """Four ranks, or as many as `@pytest.mark.parametrize("ranks", [n], indirect=True)` says."""
    team = Ranks(getattr(request, "param", 4))
    yield team
    team.close()
