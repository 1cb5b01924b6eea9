"""What a step is called with is read again as the script has it by then."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainmover.worker.data.inputs import hash_of
from trainmover.worker.join.way.called import NotKnown, called_with

READ = [
    "kept.x",
    "kept.x[part], then=kept.x[:1]",
    "*kept.rows, **{'then': kept.x}",
    "kept.rows[-1] * 2 + 1, (kept.number, [kept.x])",
    "kept.x[part].clone().to(torch.float64)",
    "-kept.x.numpy().reshape(2, 1), 7",
    "kept.x[part : part + 1], kept.owner.name",
]
NOT_READ = [
    "made(kept)",
    "kept.rows.pop()",
    "kept.x.add_(1)",
    "[one for one in kept.rows]",
    "(part := 1)",
    "lambda: kept.x",
    "kept.gone.x",
    "kept.x[part + 5]",
    "kept.x.bernoulli()",
    "kept.x.numpy().sort()",
    "own.mean",
    "own[0]",
    "own + 1",
]
SCRIPT = """
def run(step, kept, made):
    part = 1
    step({})
"""


class Own:
    """Has code of the script's behind all that is read of it."""

    @property
    def mean(self) -> float:
        return 1.0

    def __getitem__(self, _: int) -> float:
        return 1.0

    def __add__(self, _: int) -> float:
        return 1.0


def kept(value: float) -> Any:
    x = torch.full((2,), value)
    return SimpleNamespace(x=x, rows=[x, x + 1], number=value, owner=SimpleNamespace(name="a"))


def called(folder: Path, text: str, before: Any, after: Any) -> tuple[int, int]:
    """Hashes of what a step is called with, and of what that is once `after` is in its place."""
    found: list[int] = []

    def step(*args: Any, **kwargs: Any) -> None:
        found.append(hash_of(args, kwargs))
        vars(holder).clear()
        vars(holder).update(vars(after))
        found.append(hash_of(*called_with(sys._getframe(1))))

    holder = SimpleNamespace(**vars(before))
    path = folder / "train.py"
    path.write_text(SCRIPT.format(text))
    names: dict[str, Any] = {"torch": torch}
    exec(compile(path.read_text(), str(path), "exec"), names)
    names["own"] = Own()
    names["run"](step, holder, lambda one: one.x)
    return found[0], found[1]


@pytest.mark.parametrize("text", READ)
def test_names_attributes_and_entries_are_read(tmp_path: Path, text: str) -> None:
    before, again = called(tmp_path, text, kept(1.0), kept(2.0))
    expected, _ = called(tmp_path, text, kept(2.0), kept(2.0))
    assert before != again == expected


@pytest.mark.parametrize("text", NOT_READ)
def test_nothing_of_the_scripts_is_run_twice(tmp_path: Path, text: str) -> None:
    before = kept(1.0)
    before.gone = SimpleNamespace(x=1)
    before.x = torch.ones(9)
    with pytest.raises(NotKnown):
        called(tmp_path, text, before, kept(2.0))
