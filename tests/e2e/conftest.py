"""Undisturbed runs are made once per arguments and session, and compared with many."""

import pytest
from harness import Outcomes, run


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
