"""Rank 0's machine dies at an exact point, in loops of every shape: always the same bits."""

from pathlib import Path

import pytest
from harness import assert_equal_runs, run

pytestmark = pytest.mark.turns(12)

SHAPES = str(Path(__file__).parents[1] / "shapes.py")


@pytest.mark.parametrize(
    ("shape", "drill", "steps"),
    [
        ("schedule-outside", "m1:passed:25:kill", 40),
        ("nested-validation", "m1:compute:75:kill", 90),
        pytest.param("loop-per-pass", "m1:passed:48:kill", 80, marks=pytest.mark.soak),
        ("scaler", "m1:compute:25:kill", 40),
        pytest.param("nested-step", "m1:gate:25:kill", 40, marks=pytest.mark.soak),
        pytest.param("caught", "m1:passed:25:kill", 40, marks=pytest.mark.soak),
    ],
)
def test_the_bits_are_those_of_the_undisturbed_run(shape: str, drill: str, steps: int) -> None:
    arguments = ["--shape", shape, "--steps", str(steps)]
    disturbed = run(
        [*arguments, "--pace", "0.04"], machines=2, standbys=1, drill=drill, script=SHAPES
    )
    assert [incident.machine for incident in disturbed.job.incidents] == ["m1"]
    calm = run([*arguments, "--pace", "0"], machines=2, standbys=0, script=SHAPES)
    assert_equal_runs(disturbed, calm)
