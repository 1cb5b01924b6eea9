"""Runs that a test has started and left are ended with it, and what they said is shown."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runs_of_trainmover import Running


@pytest.fixture
def start(tmp_path: Path) -> Iterator[type[Running]]:
    started: list[Running] = []

    def start(*flags: str, behave: str = "good", **given: Any) -> Running:
        started.append(Running(tmp_path, *flags, behave=behave, **given))
        return started[-1]

    yield start  # type: ignore[misc]
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
        print(*running.process.communicate(timeout=60), sep="\n")
