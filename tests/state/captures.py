"""Scripts run with a job that captures their variables at each fetch, as a rank and as a joiner."""

import runpy
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trainmover.state.script.comparison import Difference
from trainmover.state.script.variables import Variables

JOINER, RANK = 3, 11  # Fetches before those that are compared.


class Fetches:
    """Stands for `job.batches`: captures at every fetch, as a rank does and as a joiner does."""

    def __init__(self, job: "Job", batches: Iterator[Any]) -> None:
        self._job = job
        self._batches = batches

    def __iter__(self) -> "Fetches":
        return self

    def __next__(self) -> Any:
        return self._job.fetch(self._batches)


class Job:
    __module__ = "trainmover"  # As the one that a script has.
    is_shadow = False

    def __init_subclass__(cls) -> None:
        cls.__module__ = Job.__module__

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        self.tracked: dict[str, object] = {}
        self.of_loops: dict[str, object] = {}
        self.loading: list[object] = []
        self.variables = Variables(
            self.tracked.items, is_own, self.of_loops.values, loaders=lambda: self.loading
        )
        self.theirs: list[bytes] = []
        self.own: list[bytes] = []

    def batches(self, batches: Any) -> Fetches:
        return Fetches(self, iter(batches))

    def fetch(self, batches: Iterator[Any]) -> Any:
        self.theirs.append(self.variables.capture())
        self.own.append(self.variables.capture(full=True))
        try:
            batch = next(batches)
        except StopIteration:
            self.variables.fetch_is_over()
            raise
        self.variables.gave(batch)
        return batch

    def differences(self, joiner: int = JOINER, rank: int = RANK) -> list[Difference]:
        return self.variables.comparison.differences(self.theirs[rank], self.own[joiner])


def run_in(folder: Path, script: str) -> Job:
    """The script, behind PRELUDE, as train.py in that folder."""
    path = folder / "train.py"
    path.write_text(PRELUDE + textwrap.dedent(script))
    job = Job(lambda file: file.startswith(str(folder)))
    runpy.run_path(str(path), {"job": job}, run_name="__main__")
    return job


def names_in(folder: Path, script: str) -> list[str]:
    """Of what is another on the rank than where a joiner stands."""
    return [one.name for one in run_in(folder, script).differences()]


@contextmanager
def installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> Iterator[None]:
    """A library of one module, which scripts can import."""
    packages = folder / "site-packages"
    packages.mkdir()
    (packages / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(packages)
    yield
    sys.modules.pop(name, None)


PRELUDE = """\
import argparse, collections, dataclasses, itertools, os, socket, time, types
import numpy
import torch
from torch import nn
DATA = [(torch.full((2,), float(i)), i % 3) for i in range(14)]
def step(x):
    return x.sum()
"""
