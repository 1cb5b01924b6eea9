"""Long campaigns (`make soak`): every kind of failure, in any order, on the examples themselves."""

import asyncio
import random
from pathlib import Path

import psutil
import pytest
from harness import Live, assert_equal_runs, run

from trainmover.controller.change.incidents import lately

pytestmark = pytest.mark.turns(12)

EXAMPLES = Path(__file__).parents[3] / "examples"
LENGTH = {"gpt.py": ["--steps", "600"], "classifier.py": ["--passes", "60"]}
ROUNDS = 12


async def kill_worker(live: Live, machine: str) -> None:
    live.signal_worker(machine)


async def stop_agent(live: Live, machine: str) -> None:
    agent = psutil.Process(live.pids[machine][0]).parent()
    assert agent is not None
    agent.suspend()
    await live.until(lambda: machine not in live.job.machines)
    agent.resume()


async def kill_machine(live: Live, machine: str) -> None:
    await live.handle.kill(machine)


async def move(live: Live, machine: str) -> None:
    await live.handle.move(machine)


async def move_and_kill(live: Live, machine: str) -> None:
    """The machine, its joiner or another dies while the move is under way."""
    moving = live.handle.move(machine)
    await live.until(lambda: live.job.change is not None or moving.done())
    stages = random.Random(live.step())
    stage = live.job.change.stage if live.job.change is not None else None
    if stages.random() < 0.7:
        await live.until(lambda: live.job.change is None or live.job.change.stage is not stage)
    victim = stages.choice([*live.job.machines])
    live.signal_worker(victim)
    await moving


FAILURES = [kill_worker, kill_worker, move, move, move_and_kill, kill_machine, stop_agent]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("example", LENGTH)
def test_any_failures_in_any_order(example: str, seed: int) -> None:
    chance = random.Random(seed)

    async def scenario(live: Live) -> None:
        budget = 3  # Machines that may be lost for good.
        for _ in range(ROUNDS):
            await live.warm(2)
            await live.at_step(live.step() + chance.randrange(1, 4))
            await asyncio.sleep(chance.random() * 0.2)  # the random moment itself
            failure = chance.choice(FAILURES if budget else FAILURES[:5])
            budget -= failure in (kill_machine, stop_agent)
            count = len(lately(live.job))
            await failure(live, chance.choice(live.job.seats))
            await live.incidents_done(count)

    arguments = LENGTH[example]
    script = str(EXAMPLES / example)
    disturbed = run(arguments, scenario, machines=4, standbys=5, script=script)
    assert_equal_runs(disturbed, run(arguments, machines=4, standbys=0, script=script))
