"""What a cached function or property gives counts, if it relies on more than what it is given:
also by methods and properties of other objects."""

from pathlib import Path

import captures
import pytest

PROGRESS = """
import functools
from trainmover.state.kinds.values import Attributes
class Progress:
    def __init__(self):
        self.smooth = 1.0
    def note(self, x):
        self.smooth = 0.8 * self.smooth + float(x[0])
    def factor(self):
        return 1.0 / self.smooth
    def __call__(self):
        return self.factor()
    @property
    def level(self):
        return self.factor()
progress = Progress()
by_name = {"it": progress}
job.tracked["progress"] = Attributes(progress, ("smooth",))
"""
GIVEN = [
    *("progress.factor()", "progress.level", "progress()", "by_name['it'].factor()"),
    *("by_name['it'].level", "(lambda: progress.factor())()"),
]


def _names(folder: Path, script: str) -> set[str]:
    job = captures.run_in(folder, PROGRESS + script)
    theirs, own = job.theirs[captures.RANK], job.own[captures.JOINER]
    before = job.variables.comparison.differences(theirs, own, at_boundary=False)
    return {one.name for one in before}


@pytest.mark.parametrize("given", GIVEN)
def test_what_a_cache_has_by_another_object_counts(tmp_path: Path, given: str) -> None:
    script = f"""
@functools.cache
def weight_of(group):
    return group * {given}
for number, (x, y) in enumerate(job.batches(DATA)):
    step(x * weight_of(number // 3))
    progress.note(x)
"""
    assert "weight_of()" in _names(tmp_path, script)


@pytest.mark.parametrize("given", [one.replace("progress", "self.meter") for one in GIVEN[:2]])
def test_a_property_that_another_object_gives_counts(tmp_path: Path, given: str) -> None:
    script = f"""
class Cut:
    def __init__(self, meter):
        self.meter = meter
    @functools.cached_property
    def limit(self):
        return {given}
cut = Cut(progress)
for number, (x, y) in enumerate(job.batches(DATA)):
    if number > 5:
        step(x * cut.limit)
    progress.note(x)
"""
    assert "cut.limit" in _names(tmp_path, script)
