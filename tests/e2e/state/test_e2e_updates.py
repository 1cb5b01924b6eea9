"""A machine dies before, in and after updates that are not local: always the same bits."""

from pathlib import Path

import pytest
from harness import assert_equal_runs, run

pytestmark = pytest.mark.turns(12)

UPDATES = str(Path(__file__).parents[1] / "updates.py")


@pytest.mark.parametrize(
    "what",
    [
        "zero,gan,search",
        *(
            pytest.param(one, marks=pytest.mark.soak)
            for one in ("zero", "gan", "closure", "search")
        ),
    ],
)
def test_an_update_that_is_cut_off_takes_all_back(what: str) -> None:
    arguments = ["--what", what, "--steps", "50"]
    drill = "m1:updated:15:kill,m2:compute:25:kill,m3:gate:35:kill"
    shape = {"machines": 2, "nproc": 2, "script": UPDATES}
    disturbed = run([*arguments, "--pace", "0.05"], standbys=3, drill=drill, **shape)
    assert len(disturbed.job.incidents) == 3
    calm = run(arguments, standbys=0, **shape)
    assert_equal_runs(disturbed, calm)
    assert any("behind the first update of a step" in said for said in disturbed.sentences)


@pytest.mark.parametrize(
    "what",
    [
        ("across,unsharded", "--apart"),
        ("thaw,scaled", "--apart"),
        *(pytest.param((w,), marks=pytest.mark.soak) for w in ("scaled", "thaw")),
    ],
)
def test_what_a_step_begins_with_is_put_back_and_travels(what: tuple[str, ...]) -> None:
    """Lost in the middle of gathered gradients, and in the very step that thaws a part; a joiner
    that has seen neither; updates that are skipped."""
    arguments = ["--what", *what, "--steps", "60"]
    drill = "m1:compute:21:kill,m2:passed:40:kill"
    shape = {"machines": 2, "script": UPDATES}
    disturbed = run([*arguments, "--pace", "0.05"], standbys=2, drill=drill, **shape)
    first, second = disturbed.job.incidents
    assert (first.machine, first.step, second.machine) == ("m1", 20, "m2")
    assert second.step <= 40, "it may have gone back to a snapshot"
    calm = run(arguments, standbys=0, **shape)
    assert_equal_runs(disturbed, calm)
