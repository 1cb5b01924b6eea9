"""Two names for one list are another thing than two equal lists."""

import gc
from collections.abc import Callable
from pathlib import Path

import captures
import pytest

COMES_APART = """
        class Run:
            def __init__(self):
                self.kept, self.best = [], []
            def note(self, number):
                self.kept.append(number)
                self.best.append(number)
                if len(self.kept) > 1:
                    self.kept.pop()
                    self.best.pop()
        run = Run()
        {first}
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                run.note(0)
                if number == 6:
                    {then}
        main()
"""


@pytest.mark.parametrize(
    ("first", "then", "theirs"),
    [
        ("pass", "run.best = run.kept = [0]", ""),
        ("run.best = run.kept", "run.best = list(run.kept)", "one of its own"),
    ],
)
def test_which_object_it_is_counts(first: str, then: str, theirs: str, tmp_path: Path) -> None:
    job = captures.run_in(tmp_path, COMES_APART.format(first=first, then=then))
    found = [one for one in job.differences() if one.name.startswith("the object of ")]
    assert len(found) == 1
    assert found[0].file == "train.py"
    assert found[0].line
    assert "one of its own" in (found[0].theirs, found[0].own)
    assert not theirs or found[0].theirs == theirs


def test_two_names_for_one_list_everywhere_are_no_difference(tmp_path: Path) -> None:
    job = captures.run_in(tmp_path, COMES_APART.format(first="run.best = run.kept", then="pass"))
    assert not [one for one in job.differences() if one.name.startswith("the object of ")]


def test_a_part_of_another_variable(tmp_path: Path) -> None:
    job = captures.run_in(
        tmp_path,
        """
        def main():
            buckets = [[], [], []]
            current = buckets[0]
            for number, (x, y) in enumerate(job.batches(DATA)):
                if number == 6:
                    current = buckets[2]
                if number > 90:
                    current.append(len(buckets[0]))
        main()
        """,
    )
    [found] = [one for one in job.differences() if one.name == "the object of current"]
    assert (found.theirs, found.own) == ("that of buckets[2]", "that of buckets[0]")


def test_who_forgets_a_run_keeps_nothing_of_it(run: Callable[[str], captures.Job]) -> None:
    """A joiner's run is followed by another one in its process: two models have no place there."""
    job = run(
        """
    import weakref
    class Keeps:
        pass
    keeps = Keeps()
    keeps.rows, keeps.model = [], Keeps()
    job.kept = weakref.ref(keeps.model)
    for x in job.batches(DATA):
        keeps.rows.append(len(keeps.rows))
    """
    )
    job.variables.forget()
    gc.collect()
    assert job.kept() is None  # type: ignore[attr-defined]
