"""Rounds of hashes, and what each shows: `rounds.txt`, as `tests.transcript` has it.

A round is what ranks hold, each in a word: `w=1,m=1|b=3|s=9` is shared state, buffers, small state.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_replicas import fact

from tests.transcript import changes, check, titles
from trainmover.controller.compare import comparison
from trainmover.controller.compare.known import Comparison
from trainmover.controller.compare.parting import FEW

EVERY = titles(Path(__file__).parent)


def of(known: Comparison, step: int, ranks: str, *, epoch: int = 1) -> Comparison:
    """After that round."""
    words = ranks.split()
    for rank, word in enumerate(words):
        shared, buffers, small = (
            {name: int(hash_) for name, _, hash_ in (one.partition("=") for one in its.split(","))}
            if its
            else {}
            for its in f"{word}||".split("|")[:3]
        )
        told = fact(rank, step, shared, buffers, small, epoch=epoch)
        known = comparison.with_fact(known, told, epoch=epoch, world_size=len(words))
    return known


def _happens(it: Comparison, line: str) -> tuple[Any, Iterator[str]]:
    after = eval(line, {**vars(comparison), "of": of, "FEW": FEW, "it": it})
    return after, changes(it, after, but={"layouts", "step", "read", "took_us"})


@pytest.mark.parametrize(("file", "title"), EVERY, ids=[title for _, title in EVERY])
def test_what_a_round_shows_is_what_is_written(
    file: Path, title: str, request: pytest.FixtureRequest
) -> None:
    words = {"Comparison": Comparison}
    check(file, title, words, _happens, anew=request.config.getoption("--rewrite"))
