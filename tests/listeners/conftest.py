"""Fixtures of the tests at the listeners. Their modules are importable by plain names."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from open_listeners import LISTENERS, Opened, opened


@pytest.fixture(params=LISTENERS)
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    with opened(request.param, tmp_path / "journal.sqlite") as listener:
        yield listener


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
