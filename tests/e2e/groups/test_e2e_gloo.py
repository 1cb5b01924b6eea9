"""The reference communicator keeps the promise too. `--comm gloo` runs all the others on it."""

import pytest
from harness import Live, assert_equal_runs, run

pytestmark = pytest.mark.turns(12)

STEPS = ["--steps", "160"]


def test_a_move_and_a_kill_on_gloo_keep_the_bits() -> None:
    async def scenario(live: Live) -> None:
        await live.warm(1)
        assert (await live.handle.move("m1")).ok
        await live.warm(1)
        live.signal_worker("m2")
        await live.incidents_done(2)

    disturbed = run([*STEPS, "--pace", "0.06"], scenario, machines=3, standbys=1, comm="gloo")
    assert len(disturbed.job.incidents) == 2
    calm = run([*STEPS, "--pace", "0"], machines=3, standbys=0, comm="gloo")
    assert_equal_runs(disturbed, calm)
