"""Workers killed at random moments, machines lost, moves in between: always the undisturbed run."""

import asyncio
import random
from pathlib import Path

import pytest
from harness import Live, assert_equal_runs, run

TRIALS = 30
STEPS = ["--steps", "5000"]


@pytest.mark.timeout(480)
def test_30_kills_at_random_moments_of_a_step(undisturbed, tmp_path: Path) -> None:
    chance = random.Random(20)
    hurry = tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        for trial in range(TRIALS):
            await live.warm(1)
            await live.at_step(live.step() + chance.randrange(1, 4))
            await asyncio.sleep(chance.random() * 0.05)  # the random moment itself
            live.signal_worker(chance.choice(live.job.seats))
            await live.incidents_done(trial + 1)
        hurry.touch()

    arguments = [*STEPS, "--pace", "0.04", "--hurry", str(hurry)]
    outcome = run(arguments, scenario, machines=3, standbys=2)
    assert len(outcome.job.incidents) >= TRIALS
    assert {i.rung for i in outcome.job.incidents} == {1}
    assert_equal_runs(outcome, undisturbed(STEPS, machines=3))
