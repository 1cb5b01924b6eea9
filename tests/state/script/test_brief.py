"""What is written before it is read, as far as the source says, goes with a rank all the same."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import captures
import numpy
import pytest
import torch
from torch import nn

from trainmover.state.script import brief
from trainmover.state.script.comparison import decoded, path_of
from trainmover.state.script.search.layout import Slot
from trainmover.state.script.things.things import Things
from trainmover.state.script.things.views import Views
from trainmover.state.script.values import NO_VALUE, entry_of

SCRIPT = """
class Trainer:
    shared = 0
    def __init__(self):
        self.last, self.row, self.by_name, self.large = 0.0, None, {}, None
    def step(self, x):
        self.last = float(x.sum())
        self.row = x.clone()
        self.by_name = {"sum": self.last}
        self.large = torch.zeros(4096) + self.last
        Trainer.shared = self.last
        print(self.last, self.row, self.by_name, self.large, Trainer.shared)
trainer = Trainer()
for x, y in job.batches(DATA):
    trainer.step(x)
    SEEN
"""


def _entry(value: object) -> Any:
    return brief.entry(value, Views(), Things())


def _run(tmp_path: Path, seen: str = "pass") -> captures.Job:
    return captures.run_in(tmp_path, SCRIPT.replace("SEEN", seen))


def _brief(data: bytes) -> dict[str, Any]:
    return {path_of(key): entry for key, entry in decoded(data).brief.items()}


def test_it_is_recorded_as_far_as_it_is_small_and_plain_and_never_compared(tmp_path: Path) -> None:
    job = _run(tmp_path)
    assert not job.differences()
    found = _brief(job.theirs[captures.RANK])
    assert found.keys() == {"trainer.last", "trainer.row", "trainer.by_name", "Trainer.shared"}
    assert found["trainer.last"] == found["Trainer.shared"] == 20.0


def test_it_is_put_as_the_rank_had_it(tmp_path: Path) -> None:
    """At the sixth fetch what the fourth one had, as if that were a rank's."""
    job = captures.Job(lambda file: file.startswith(str(tmp_path)))
    path = tmp_path / "train.py"
    path.write_text(captures.PRELUDE + SCRIPT.replace("SEEN", "SEEN.append(vars(trainer) | {})"))
    theirs: list[bytes] = []
    put = []

    def fetch(batches: Iterator[Any]) -> Any:
        own = job.variables.capture(full=True)
        theirs.append(own)
        if len(theirs) == 6:
            rank = decoded(theirs[3]).brief
            job.variables.put_brief(rank, [], own, [*theirs[:3], own])
            put.append(_brief(job.variables.capture()))
        return next(batches)

    job.fetch = fetch  # type: ignore[method-assign]
    runpy.run_path(str(path), {"job": job, "SEEN": []}, run_name="__main__")
    assert put == [_brief(theirs[3])]
    assert put != [_brief(theirs[5])]


def test_what_others_make_of_it_is_told_where_they_began_alike() -> None:
    theirs, before = {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 1.0, "b": 5.0}
    assert brief.made_of(theirs, before, {"a": 4.0, "b": 4.0, "c": 4.0}) == {"a": 4.0}


@pytest.mark.parametrize(
    "value", [None, 1, 2.0, "text", "long " * 20, b"1", torch.ones(3), numpy.ones(3), [1, "a"], {}]
)
def test_what_is_small_and_plain_is_its_own_content(value: object) -> None:
    assert brief.may_be(value)
    assert _entry(value) == entry_of(value)


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(3, requires_grad=True),
        torch.ones(4096),
        torch.eye(2).to_sparse(),
        "long" * 1000,
        ["long" * 1000],
        numpy.array([None, 1]),
        numpy.ones(4096),
        [torch.ones(2)],
        [1] * 100,
        nn.Linear(1, 1),
        object(),
        (object(),),
        print,
    ],
)
def test_of_nothing_else_anything_is_told(value: object) -> None:
    assert _entry(value) is NO_VALUE


BESIDE = """
import time
class Trainer:
    def __init__(self):
        self.table = [torch.zeros(2), torch.ones(2)]
        self.row, self.api_token, self.began = self.table[0], "", 0.0
    def step(self, x):
        self.row = self.table[int(x[0]) % 2]
        self.api_token = f"hidden-{float(x[0])}"
        self.began = time.time()
        print(self.row, self.api_token, self.began)
trainer = Trainer()
model = nn.Linear(1, 1)
for x, y in job.batches(DATA):
    trainer.step(x)
    model.began = time.time()
    print(model.began)
"""


def test_no_secret_and_no_time_is_recorded(tmp_path: Path) -> None:
    job = captures.run_in(tmp_path, BESIDE)
    assert _brief(job.theirs[captures.RANK]).keys() == {"trainer.row"}
    assert b"hidden-" not in job.theirs[captures.RANK]


def test_it_is_stored_and_nothing_is_filled_that_others_hold() -> None:
    table = [torch.zeros(2), torch.ones(2)]
    held: dict[str, Any] = {"row": table[0], "same": 1.0}
    slots = [Slot(name, held, name, secret=False) for name in held]
    brief.store(slots, {"row": torch.full((2,), 5.0), "same": 1.0})
    assert held["row"].tolist() == [5.0, 5.0]
    assert [row.tolist() for row in table] == [[0.0, 0.0], [1.0, 1.0]]
