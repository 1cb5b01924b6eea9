"""Undisturbed runs are made once per arguments and session, and compared with many."""

import os
from collections.abc import Iterator

import pytest
from harness import COMM, LIMIT, Outcomes, run


@pytest.fixture(scope="session", autouse=True)
def _communicator(request: pytest.FixtureRequest) -> Iterator[None]:
    """`pytest tests/e2e --comm gloo` runs all of them on that one."""
    chosen = request.config.getoption("--comm")
    if chosen:
        os.environ[COMM] = chosen
    yield
    os.environ.pop(COMM, None)


@pytest.fixture(autouse=True)
def _limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job is ended, and described, before its test is."""
    timeout = request.config.getoption("timeout") or request.config.getini("timeout")
    monkeypatch.setenv(LIMIT, str(0.8 * float(timeout)))


@pytest.fixture(scope="session")
def undisturbed():
    """Call it with what `run` takes: the outcome without any incident."""
    known: dict[tuple[object, ...], Outcomes] = {}

    def of(arguments: list[str], **options: int) -> Outcomes:
        key = (*arguments, *sorted(options.items()))
        if key not in known:
            known[key] = run([*arguments, "--pace", "0"], standbys=0, **options)
        return known[key]

    return of
