"""Shared by all tests. Modules here and in each folder are importable by their plain names."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--comm", help="communicator of the end-to-end tests: native or gloo")


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of this test are found only by it."""
    home = tmp_path / "home"
    monkeypatch.setenv("TRAINMOVER_HOME", str(home))
    return home
