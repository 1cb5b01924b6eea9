"""Death at exact points of a step, before its gate and behind it: the bits never change."""

import pytest
from harness import assert_equal_runs, run

pytestmark = pytest.mark.turns(12)

STEPS = ["--steps", "150", "--evaluate-every", "10"]


def test_death_at_every_point_of_a_step_gives_the_undisturbed_run(undisturbed) -> None:
    drill = ",".join(
        [
            "m1:compute:30:kill",  # others still compute: abort
            "m2:gate:60:sleep=0.5",
            "m2:gate:60:kill",  # all survivors are in the gate by then, nobody is past it: abort
            "m3:passed:90:kill",  # through the gate, nothing applied: back to a snapshot
            "m4:fetch:120:kill",  # between steps, its next record is not told: back to a snapshot
        ]
    )
    outcome = run([*STEPS, "--pace", "0.03"], machines=3, standbys=4, drill=drill)
    steps = {i.machine: (i.rung, i.step or 0) for i in outcome.job.incidents}
    assert (steps["m1"], steps["m2"]) == ((1, 29), (1, 59)), outcome.sentences
    assert steps["m3"][0] == steps["m4"][0] == 2, outcome.sentences
    assert steps["m3"][1] < 90
    assert_equal_runs(outcome, undisturbed(STEPS, machines=3))
    assert all(c.equal for i in outcome.job.incidents for c in i.certificates)


def test_an_error_of_ours_on_the_way_back_ends_no_job(undisturbed) -> None:
    """The process that was to go back in place gives way to a fresh one, and people are told."""
    flags = ["--misbehave", "no-way-back"]
    outcome = run([*STEPS, *flags], machines=2, standbys=1, drill="m2:passed:60:kill")
    assert [one.rung for one in outcome.job.incidents] == [2], outcome.sentences
    assert any("going back in place failed: AttributeError" in s for s in outcome.sentences)
    assert_equal_runs(outcome, undisturbed(STEPS, machines=2))
