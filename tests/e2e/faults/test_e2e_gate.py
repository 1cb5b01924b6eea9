"""Death at exact points of a step, in both outcomes of the gate: the bits never change."""

import pytest
from harness import assert_equal_runs, run

pytestmark = pytest.mark.turns(12)

STEPS = ["--steps", "150", "--evaluate-every", "10"]


def test_death_at_every_point_of_a_step_gives_the_undisturbed_run(undisturbed) -> None:
    drill = ",".join(
        [
            "m1:compute:30:kill",  # others still compute: abort
            "m2:gate:60:sleep=0.5",
            "m2:gate:60:kill",  # all survivors are in the gate by then: commit forward
            "m3:passed:90:kill",  # through the gate, nothing applied: commit forward
            "m4:fetch:120:kill",  # between steps, its newest record is from the gate
        ]
    )
    outcome = run([*STEPS, "--pace", "0.03"], machines=3, standbys=4, drill=drill)
    steps = [(i.machine, i.step) for i in outcome.job.incidents]
    assert [s for s in steps if s[0] in ("m1", "m2", "m3")] == [
        ("m1", 29),
        ("m2", 60),
        ("m3", 90),
    ], outcome.sentences
    assert_equal_runs(outcome, undisturbed(STEPS, machines=3))
    assert all(c.equal for i in outcome.job.incidents for c in i.certificates)
