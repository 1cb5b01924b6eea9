"""Models on a GPU: ranks of three machines and a standby share the first one."""

from pathlib import Path

import pytest
from harness import Live, assert_equal_runs, run

from trainmover.controller.state import Outcome

pytestmark = pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="needs an NVIDIA GPU")
STEPS = ["--steps", "120", "--device", "cuda"]


def test_a_move_and_a_kill_keep_the_bits(undisturbed) -> None:
    async def scenario(live: Live) -> None:
        await live.warm(1)
        answer = await live.handle.move("m2")
        assert answer.ok, answer
        await live.warm(1)
        live.signal_worker("m1")
        await live.incidents_done(2)

    outcome = run([*STEPS, "--pace", "0.2"], scenario, machines=3, standbys=1)
    assert [i.outcome for i in outcome.job.incidents] == [Outcome.DONE] * 2
    assert_equal_runs(outcome, undisturbed(STEPS, machines=3))
