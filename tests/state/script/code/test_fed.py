"""What an object keeps of the time that it is given is none of the script's; what else it has goes
with the rank."""

import ast
import textwrap
from pathlib import Path
from typing import Any

import captures
import pytest

from trainmover.state.script.code import grammar
from trainmover.state.script.code.times.fed import kept_in
from trainmover.state.script.comparison import decoded, path_of

METER = """
class Meter:
    def __init__(self):
        self.rows, self.recent, self.owner = [], {}, None
        self.val = self.sum = self.avg = self.best = self.level = 0.0
        self.count = self.slow = self.seen = 0
        self.first = 1e18
    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count
        self.best = min(self.best, val) if val > 0 else val
        if val > 1:
            self.slow += 1
        self.rows.append(val)
        self.seen = len(self.rows)
        self.recent["last"] = val
        self.level = 0.9 * self.level + 0.1 * self.owner.last
        self._note(seconds=val)
        self.first = min(self.first, time.perf_counter())
    def _note(self, seconds):
        later = 2 * seconds
        self.noted, self.pairs = later, [(seconds, self.level)]
"""


def _kept(source: str) -> dict[str, set[str]]:
    tree = ast.parse(textwrap.dedent(source))
    return kept_in(tree, list(grammar.functions(tree, "")))


def test_what_is_made_of_what_a_method_is_given() -> None:
    assert _kept(METER) == {
        "Meter": {"val", "sum", "avg", "best", "rows", "recent", "noted"},
    }


def test_a_class_has_what_its_bases_keep() -> None:
    source = """
        class Base:
            def update(self, value):
                self.value = value
        class Smooth(Base):
            def update(self, *values):
                super().update(values[0])
                self.mean = 0.9 * self.mean + 0.1 * self.value
        class Other:
            def observe(self, value):
                self.value = value
        class Nested:
            def add(self, value):
                self.inner.update(value)
                for one in [value]:
                    heapq.heappush(self.heap, one)
    """
    assert _kept(source) == {
        "Base": {"value"},
        "Smooth": {"value", "mean"},
        "Nested": {"inner", "heap"},
    }


BESIDE = {
    "by a method of its own": ("meter = Meter()", "meter", "meter.slow += 1"),
    "how often it was given it": ("meter = Meter()", "meter", "pass"),
    "in an object": (
        "kept = types.SimpleNamespace()\nkept.meter = Meter()\nmeter = kept.meter",
        "kept.meter",
        "kept.meter.slow += 1",
    ),
    "in a dict": (
        "meters = {'time': Meter()}\nmeter = meters['time']",
        "meters['time']",
        "meters['time'].slow += 1",
    ),
    "in a list as well": ("every = [Meter()]\nmeter = every[0]", "meter", "every[0].slow += 1"),
}


@pytest.mark.parametrize("how", BESIDE)
def test_what_else_it_has_goes_along_and_the_time_does_not(how: str, tmp_path: Path) -> None:
    made, name, changed = BESIDE[how]
    job = captures.run_in(
        tmp_path,
        METER
        + textwrap.dedent(f"""
{made}
meter.owner = types.SimpleNamespace(last=1.0)
end = time.time()
for x, y in job.batches(DATA):
    {name}.update(time.time() - end)
    end = time.time()
    {changed}
    print(meter.count)
"""),
    )
    assert not job.differences()
    brief: dict[str, Any] = {
        path_of(key).rpartition(".")[2]: entry
        for key, entry in decoded(job.theirs[captures.RANK]).brief.items()
    }
    assert brief["count"] == 11
    assert brief.keys() >= {"slow", "seen", "level"}
    assert not brief.keys() & {"val", "sum", "avg", "best", "rows", "noted", "first"}


def test_what_it_has_of_the_scripts_own_is_looked_into(tmp_path: Path) -> None:
    job = captures.run_in(
        tmp_path,
        """
class Trainer:
    def __init__(self):
        self.last = 0.0
class Timer:
    def __init__(self, owner):
        self.owner = owner
    def update(self, seconds):
        self.seconds, self.owner.last = seconds, self.owner.last + 1.0
timer = Timer(Trainer())
for x, y in job.batches(DATA):
    timer.update(time.time())
    print(timer.owner.last)
""",
    )
    assert [one.name for one in job.differences()] == ["timer.owner.last"]
