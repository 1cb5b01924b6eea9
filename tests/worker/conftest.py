"""Fixtures of the worker tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from vaults import buddies

from trainmover.comm import groups
from trainmover.sandbox.process.modules import is_own_file, ours_are_loaded
from trainmover.worker import member

__all__ = ["buddies"]
_TESTS = str(Path(__file__).parents[1])


@pytest.fixture(autouse=True)
def _nobody_listens_to_groups() -> Iterator[None]:
    """As behind the run of a script: what later tests fork would go by it."""
    yield
    groups.on_cut_short = groups.on_given_up = groups.on_call = None


@pytest.fixture(autouse=True)
def _tests_are_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """What all tests of this process have loaded and hold would be looked through at each fetch."""
    monkeypatch.setattr(member, "is_own_file", _is_a_script)
    ours_are_loaded()


def _is_a_script(path: str) -> bool:
    return not path.startswith(_TESTS) and is_own_file(path)
