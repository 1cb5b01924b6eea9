"""The controller of a real job is killed: training goes on, and the bits are the same."""

import random
from pathlib import Path

import psutil
import pytest
from commanded import Commanded, commanded
from harness import assert_equal_runs

pytestmark = pytest.mark.turns(12)


def kill_controller(run: Commanded) -> None:
    """Returns when another one answers, and all machines are back or replaced."""
    known = run.until(lambda _: True)["controller"]["restarts"]
    run.the("controller").kill()
    run.until(lambda status: status["controller"]["restarts"] > known)


def test_a_job_survives_its_controller_also_in_the_moment_of_a_loss(
    undisturbed, tmp_path: Path
) -> None:
    with commanded(tmp_path, "--machines", "3", "--standbys", "1") as run:
        run.until_warm(1)
        kill_controller(run)
        run.steps_more(5)
        controller, agent = run.the("controller"), run.the("trainmover.agent", "m2")
        controller.suspend()  # It does not see the loss, and is killed for that.
        agent.kill()
        run.until(lambda status: status["incidents"] and run.until_warm(0))
        run.steps_more(5)
        outcome = run.end()
        psutil.wait_procs(run.family, timeout=5)
        assert run.left() == []
    assert outcome.job.takeovers == 2
    assert [i.rung for i in outcome.job.incidents] in ([1], [2])
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=3))


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(2))
def test_controller_store_and_machines_are_killed_at_random(
    undisturbed, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    with commanded(tmp_path, "--machines", "3", "--standbys", "2", pace=0.04) as run:
        losses = 0
        for _ in range(10):
            run.until_warm(min(1, 2 - losses))
            run.steps_more(chance.randrange(1, 4))
            what = chance.choice(["controller", "store", "machine", "all"])
            if what in ("store", "all"):
                run.kill_store()
            if what in ("machine", "all") and losses < 2:
                losses += 1
                seated = [m["id"] for m in run.until(lambda _: True)["machines"] if m["ranks"]]
                run.the("trainmover.agent", chance.choice(seated)).kill()
            if what in ("controller", "all"):
                kill_controller(run)
        run.until_warm(0)
        run.steps_more(3)
        outcome = run.end()
        psutil.wait_procs(run.family, timeout=5)
        assert run.left() == []
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=3))
