"""What libraries keep in memory of their own, and show as an array: a frame of pandas, say."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from captures import Job, installed, run_in

Run = Callable[[str], Job]

TOY_FRAME = """
import weakref
import numpy

_ROWS = weakref.WeakKeyDictionary()  # As if it were in C.

class Frame:
    __slots__ = ("__dict__", "__weakref__")
    def __init__(self, rows=()):
        _ROWS[self] = [*rows]
    @property
    def at(self):
        return self
    @property
    def shape(self):
        return len(_ROWS[self]), 2
    def add(self, *row):
        _ROWS[self].append(row)
    def mean(self):
        self.asked = getattr(self, "asked", 0) + 1
        return float(numpy.mean(_ROWS[self] or 0.0))
    def __setitem__(self, place, row):
        _ROWS[self][place] = row
    def __getitem__(self, rows):
        return Frame(_ROWS[self][rows])
    def __array__(self, dtype=None, copy=None):
        return numpy.array(_ROWS[self], dtype=object)
    def __array_ufunc__(self, *args, **kwargs):
        return NotImplemented
"""


@pytest.fixture
def run(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """Of a script that may import `toy_frame`, which is installed elsewhere."""
    with installed(tmp_path_factory.mktemp("elsewhere"), monkeypatch, "toy_frame", TOY_FRAME):
        yield lambda script: run_in(tmp_path, "from toy_frame import Frame\n" + script)


SCRIPTS = {
    "log": """
log = Frame()
for x, y in job.batches(DATA):
    step(x * log.mean())
    log.add(y, 1.0)
""",
    "log.rows": """
class Log:
    def __init__(self):
        self.rows = Frame([(0, 0.0)] * 3)
    def add(self, x, y):
        self.rows.at[y] = (y, x.sum().item())
log = Log()
for x, y in job.batches(DATA):
    step(x * log.rows.mean())
    log.add(x, y)
""",
    "logs": """
logs = [Frame([(0, 0.0)] * 5000)]
for x, y in job.batches(DATA):
    step(x * logs[0].mean())
    logs[0].at[-1] = (y, x.sum().item())
""",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_one_that_changes_is_found_wherever_it_is_kept(run: Run, name: str) -> None:
    assert {one.name for one in run(SCRIPTS[name]).differences()} == {name}


def test_what_it_is_is_told(run: Run) -> None:
    [log] = run(SCRIPTS["log"]).differences()
    assert (log.theirs, log.own) == ("a Frame of shape 11x2", "a Frame of shape 3x2")


def test_one_that_stays_may_keep_for_itself_how_often_it_was_asked(run: Run) -> None:
    script = """
class Data:
    def __init__(self):
        self.rows = Frame([(0, 0.0)] * 3)
data = Data()
for x, y in job.batches(DATA):
    step(x * data.rows.mean())
"""
    assert run(script).differences() == []
