"""What is gone with a rank, and only seems to be written before it is read, is used by nobody."""

import copy
import io
import operator
import pickle
import runpy
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import captures
import numpy
import pytest
import torch
from torch import nn

from trainmover.errors import StateMismatch
from trainmover.state.script.away import Away, is_value
from trainmover.state.script.comparison import decoded

SCRIPT = """
class Trainer:
    def __init__(self):
        self.last, self.large, self.out, self.scale = 0.0, None, None, 2.0
    def step(self, x):
        self.last = float(x.sum())
        self.large = torch.zeros(4096) + self.last
        self.out = nn.Identity()(x * 2.0).requires_grad_()
        print(self.last, self.large, self.out, self.scale)
trainer = Trainer()
early = [1.0]
print(early)
def train():
    began, many = "now", 0
    print(began)
    for x, y in job.batches(DATA):
        total, scaled = x.sum(), trainer.scale
        trainer.step(x)
        many += 1
        print(total, many, scaled)
train()
"""


Seen = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def _run(tmp_path: Path, with_locals: bool = True) -> list[Seen]:
    """What the script has at its fifth fetch, where all is put away that no record has, and at the
    sixth: attributes of the trainer, locals and globals."""
    job = captures.Job(lambda file: file.startswith(str(tmp_path)))
    path = tmp_path / "train.py"
    path.write_text(captures.PRELUDE + SCRIPT)
    seen: list[Seen] = []

    def fetch(batches: Iterator[Any]) -> Any:
        own = job.variables.capture(full=True)
        if len(seen) == 4:
            job.variables.put_away(decoded(own).brief, with_locals=with_locals)
        frame = sys._getframe(2)
        trainer = vars(frame.f_globals["trainer"])
        seen.append((dict(trainer), dict(frame.f_locals), dict(frame.f_globals)))
        return next(batches)

    job.fetch = fetch  # type: ignore[method-assign]
    runpy.run_path(str(path), {"job": job}, run_name="__main__")
    return seen[4:6]


def _away(held: dict[str, Any]) -> set[str]:
    return {name for name, value in held.items() if type(value) is Away}


def test_what_no_record_has_is_put_away_till_the_script_writes_it(tmp_path: Path) -> None:
    (attributes, local, top), later = _run(tmp_path)
    assert _away(attributes) == {"large", "out"}
    assert _away(local) == {"total", "scaled", "x", "y"}
    assert not _away(top)
    assert attributes["last"] == 6.0
    assert not _away(later[0])
    assert not _away(later[1])


def test_locals_stay_where_only_attributes_are_asked_for(tmp_path: Path) -> None:
    (attributes, local, top), _ = _run(tmp_path, with_locals=False)
    assert _away(attributes) == {"large", "out"}
    assert not _away(local) | _away(top)


def test_what_nobody_writes_again_stays(tmp_path: Path) -> None:
    """It is what it was made as: whoever reads it all the same, in a way that no source shows, has
    the rank's value."""
    (_, local, top), _ = _run(tmp_path)
    assert local["began"] == "now"
    assert top["early"] == [1.0]


_SAID = "`self.h` (train.py line 3)"
_USES: list[Callable[[Any], object]] = [
    *(bool, float, int, str, repr, len, iter, next, hash, abs, round, list, sum, complex),
    *(operator.neg, operator.index, numpy.asarray, torch.as_tensor, torch.sum),
    *(lambda one: one + 1, lambda one: 1 - one, lambda one: torch.ones(1) * one),
    *(lambda one: numpy.ones(2) * one, lambda one: one == one, lambda one: one != 1),
    *(lambda one: one < 1, lambda one: max(1, one), lambda one: one[0], lambda one: 1 in one),
    *(lambda one: one.item(), lambda one: one.shape, lambda one: one(), lambda one: f"{one:.3f}"),
    *(lambda one: one @ torch.ones(1), lambda one: torch.ones(1) @ one, lambda one: {one}),
    *(lambda one: torch.cat([one, torch.ones(1)]), lambda one: [*one], lambda one: one.x.y),
    *(lambda one: divmod(one, 2), lambda one: 2**one, lambda one: one | 1, lambda one: [1][one]),
    *(pickle.dumps, lambda one: torch.save({"a": one}, io.BytesIO())),
    *(lambda one: max(one, 1.0), lambda one: nn.functional.relu(one), lambda one: print(one)),
]


@pytest.mark.parametrize("number", range(len(_USES)))
def test_to_use_it_is_an_error_that_says_what_it_was(number: int) -> None:
    with pytest.raises(StateMismatch, match=r"reads `self\.h` \(train\.py line 3\)"):
        _USES[number](Away(_SAID))


def test_it_may_be_stored_and_copied() -> None:
    """As all that a model has is, by who keeps the best one."""
    one = Away(_SAID)
    assert copy.copy(one) is copy.deepcopy(one) is one
    assert copy.deepcopy([one])[0] is one
    module = nn.Linear(1, 1)
    module.h = one  # type: ignore[assignment]
    assert module.to("cpu") is module
    assert copy.deepcopy(module).h is one
    module.h = torch.ones(1)
    assert isinstance(module.h, torch.Tensor)


@pytest.mark.parametrize(
    "value", [None, 1, 2.0, "a", torch.ones(2), numpy.ones(2), numpy.float64(1), [1, 2.0], {}, ()]
)
def test_values_are_put_away(value: object) -> None:
    assert is_value(value)


@pytest.mark.parametrize(
    "value",
    [
        *(object(), print, nn.Linear(1, 1), nn.Parameter(torch.ones(1)), [nn.Linear(1, 1)]),
        *([1] * 100, [[1]], {"a": object()}, deque([print]), open, type, Away(_SAID)),
    ],
)
def test_what_others_may_live_by_is_not(value: object) -> None:
    """To drop a loader, a folder or a file may end it."""
    assert not is_value(value)
