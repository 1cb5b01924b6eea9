"""Globals of the script's first file that are read where its own flow does not show it are no dead
ones: they are compared or stay, and are never put away."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import captures
import pytest

from trainmover.state.script.away import Away

SCRIPT = """
scale, values = 1.0, [1.0, 2.0]
for x, y in job.batches(DATA):
    MADE
    scale = float(x[0])
    used = scale
HELD
"""
READ = {
    "a comprehension": "shown = [one * scale for one in values]",
    "a generator expression": "shown = sum(one * scale for one in values)",
    "a function without a name": "shown = (lambda: scale)()",
    "a comprehension in one": "shown = [[scale for _ in values] for _ in values]",
}


def _put_away(folder: Path, made: str, held: str = "") -> tuple[set[str], list[str]]:
    """Globals that are put away at the sixth fetch, and what is another on a rank than there."""
    job = captures.Job(lambda file: file.startswith(str(folder)))
    path = folder / "train.py"
    path.write_text(captures.PRELUDE + SCRIPT.replace("MADE", made).replace("HELD", held))
    found: list[set[str]] = []
    taken: list[bytes] = []

    def fetch(batches: Iterator[Any]) -> Any:
        taken.append(job.variables.capture(full=True))
        if len(taken) == 6:
            job.variables.put_away({*()}, with_locals=True)
            held = sys._getframe(2).f_globals
            found.append({name for name, value in held.items() if type(value) is Away})
            raise KeyboardInterrupt
        return next(batches)

    job.fetch = fetch  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        runpy.run_path(str(path), {"job": job}, run_name="__main__")
    names = [one.name for one in job.variables.comparison.differences(taken[4], taken[2])]
    return found[0], names


@pytest.mark.parametrize("how", READ)
def test_what_is_read_at_once_by_what_has_code_of_its_own_counts(tmp_path: Path, how: str) -> None:
    away, differ = _put_away(tmp_path, READ[how])
    assert "scale" not in away
    assert "scale" in differ


@pytest.mark.parametrize(
    "held",
    [
        "class Kept:\n    value = scale",
        "def report():\n    total = sum(scale for scale in values)\n    return scale",
    ],
)
def test_what_a_class_or_a_function_names_is_never_put_away(tmp_path: Path, held: str) -> None:
    away, _ = _put_away(tmp_path, "pass", held)
    assert "scale" not in away


def test_what_nobody_else_names_is(tmp_path: Path) -> None:
    away, differ = _put_away(tmp_path, "pass")
    assert {"scale", "used"} <= away
    assert "scale" not in differ


LATER = {
    "a default": ["def inner(one, scale=scale):", "    return one * scale"],
    "a default by name only": ["def inner(one, *, scale=scale):", "    return one * scale"],
    "a default of a function without a name": ["inner = lambda one, scale=scale: one * scale"],
    "a decorator": ["@times(scale)", "def inner(scale):", "    return scale"],
    "an annotation": [
        "def inner(one: [scale]):",
        "    return one * inner.__annotations__['one'][0]",
    ],
    "the body of a class": ["class Times:", "    scale = scale", "inner = Times.scale.__mul__"],
    "beside a comprehension": ["used = [scale for scale in [1]]", "inner = scale.__mul__"],
}


@pytest.mark.parametrize("how", LATER)
def test_what_is_worked_out_as_an_inner_function_is_defined_is_read(
    how: str, tmp_path: Path
) -> None:
    inner = "\n    ".join(LATER[how])
    script = f"""
def times(factor):
    return lambda function: lambda one: function(factor * one)
def train_step(x):
    {inner}
    return inner(float(x[0]))
scale = 0.5
for x, y in job.batches(DATA):
    train_step(x)
    if x[0] % 3 == 0:
        scale = 0.5 / (1 + float(x[0]))
"""
    assert captures.names_in(tmp_path, script) == ["scale"]


def test_what_a_class_in_a_loop_reads_counts(tmp_path: Path) -> None:
    names = captures.names_in(
        tmp_path,
        """
        scale = 0.5
        for x, y in job.batches(DATA):
            class Times:
                rate = scale
            step(x * Times.rate)
            scale = 0.5 / (1 + float(x[0]))
        """,
    )
    assert "scale" in names
