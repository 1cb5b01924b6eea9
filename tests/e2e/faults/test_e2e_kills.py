"""Workers killed at random moments, machines lost, moves in between: always the undisturbed run."""

import asyncio
import random

import pytest
from harness import Live, assert_equal_runs, run

from trainmover.controller.change.incidents import lately

pytestmark = pytest.mark.turns(12)


@pytest.mark.timeout(480)
@pytest.mark.parametrize("trials", [6, pytest.param(30, marks=pytest.mark.soak)])
def test_kills_at_random_moments_of_a_step(undisturbed, trials: int) -> None:
    chance = random.Random(20)

    async def scenario(live: Live) -> None:
        for trial in range(trials):
            await live.warm(1)
            await live.at_step(live.step() + chance.randrange(1, 4))
            await asyncio.sleep(chance.random() * 0.05)  # the random moment itself
            live.signal_worker(chance.choice(live.job.seats))
            await live.incidents_done(trial + 1)

    outcome = run(["--pace", "0.04"], scenario, until_done=True, machines=3, standbys=2)
    assert len(lately(outcome.job)) >= trials
    assert {1} <= {i.rung for i in lately(outcome.job)} <= {1, 2}
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=3))
