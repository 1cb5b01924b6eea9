"""Variables are captured where the script calls a step, too, and that leaves no trace."""

import runpy
import textwrap
from pathlib import Path
from typing import Any

import pytest
from captures import PRELUDE, Job

from trainmover.state.script.comparison import Difference


class Stepping(Job):
    """captures: of a rank, and of a joiner, at each step"""

    def __init__(self, folder: Path, *, at_steps: bool = True) -> None:
        super().__init__(lambda file: file.startswith(str(folder)))
        self.captures: list[tuple[bytes, bytes]] = []
        self._at_steps = at_steps

    def step(self, *_: Any) -> None:
        if self._at_steps:
            variables = self.variables
            self.captures.append(
                (variables.capture_at_step(), variables.capture_at_step(full=True))
            )


def run(folder: Path, script: str, **options: bool) -> Stepping:
    path = folder / "train.py"
    path.write_text(PRELUDE + textwrap.dedent(script))
    job = Stepping(folder, **options)
    runpy.run_path(str(path), {"job": job}, run_name="__main__")
    return job


def apart(job: Stepping, theirs: int, own: int) -> list[Difference]:
    there, here = job.captures[theirs][0], job.captures[own][1]
    return job.variables.comparison.differences(there, here, at_boundary=False)


FOUND = {
    "a local that a later step takes": (
        ["then"],
        """
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                then = x + number
                job.step(x)
                job.step(then)
        main()
        """,
    ),
    "what a loop around goes through": (
        ["then"],
        """
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                then = x + number
                for part in then.split(1):
                    job.step(part)
        main()
        """,
    ),
    "nothing that is made anew": (
        [],
        """
        def main():
            for x, y in job.batches(DATA):
                then = x + 1
                for _ in range(2):
                    then = torch.ones(2)
                    job.step(then)
        main()
        """,
    ),
    "an attribute": (
        ["rolls.then"],
        """
        class Rolls:
            then = None
            def fill(self, x):
                self.then = x
            def use(self):
                return self.then
        rolls = Rolls()
        def main():
            for x, y in job.batches(DATA):
                rolls.fill(x)
                job.step(x)
                job.step(rolls.use())
        main()
        """,
    ),
}


@pytest.mark.parametrize("case", FOUND)
def test_what_lines_behind_the_fetch_have_made_is_compared(tmp_path: Path, case: str) -> None:
    names, script = FOUND[case]
    job = run(tmp_path, script)
    found = {one.name for one in apart(job, 10, 12)} - {"number"}
    assert found == found | {*names}
    assert bool(found) is bool(names)
    assert apart(job, 10, 10) == []


def test_a_fetch_finds_what_it_would_find_without(tmp_path: Path) -> None:
    _, script = FOUND["an attribute"]
    with_steps, without = run(tmp_path, script), run(tmp_path, script, at_steps=False)
    assert with_steps.theirs == without.theirs
    assert with_steps.own == without.own
