"""Whole incidents, told beside what they come to: `*.txt`, as `tests.transcript` has it."""

from pathlib import Path

import pytest
from words import WORDS, happens

from tests.transcript import check, titles

EVERY = titles(Path(__file__).parent)


@pytest.mark.parametrize(("file", "title"), EVERY, ids=[title for _, title in EVERY])
def test_what_follows_is_what_is_written(
    file: Path, title: str, request: pytest.FixtureRequest
) -> None:
    check(file, title, WORDS, happens, anew=request.config.getoption("--rewrite"))
