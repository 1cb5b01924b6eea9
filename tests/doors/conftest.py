"""Fixtures of the tests at the doors. Their modules are importable by plain names."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from open_doors import DOORS, Door, opened


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    with opened(request.param, tmp_path / "journal.sqlite") as door:
        yield door


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
