"""Fixtures of the worker tests."""

from collections.abc import Iterator

import pytest
from vaults import buddies

from trainmover.comm import groups

__all__ = ["buddies"]


@pytest.fixture(autouse=True)
def _nobody_listens_to_groups() -> Iterator[None]:
    """As behind the run of a script: what later tests fork would go by it."""
    yield
    groups.on_cut_short = groups.on_given_up = groups.on_call = None
