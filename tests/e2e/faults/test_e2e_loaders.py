"""A loader process that is killed, as the kernel does for memory, costs its rank, not the job."""

import os
import signal
from pathlib import Path

import psutil
import pytest
from harness import Live, assert_equal_runs, run

pytestmark = pytest.mark.turns(4)

LOADING = str(Path(__file__).parents[1] / "loading.py")


def kill_loader(live: Live, machine: str) -> int:
    """The first that the machine's worker has; its pid."""
    pid = min(child.pid for child in psutil.Process(live.pids[machine][0]).children())
    os.kill(pid, signal.SIGKILL)
    return pid


@pytest.mark.parametrize("standbys", [0, 1])
def test_a_killed_loader_process_costs_its_rank_and_not_the_job(
    standbys: int, undisturbed, tmp_path: Path
) -> None:
    killed: list[int] = []

    async def scenario(live: Live) -> None:
        if standbys:
            await live.holding()
        await live.at_step(live.step() + 5)
        killed.append(kill_loader(live, live.job.seats[0]))
        await live.incidents_done(1)
        await live.at_step(live.step() + 3)
        (tmp_path / "done").touch()

    arguments = ["--workers", "2"]
    until = [*arguments, "--until", str(tmp_path / "done")]
    outcome = run(until, scenario, script=LOADING, machines=2, standbys=standbys)
    (incident,) = outcome.job.incidents
    assert incident.cause == (
        f"worker 0 of m1 ended (signal 9: its loader process {killed[0]} was killed)"
    )
    calm = undisturbed([*arguments, "--steps", outcome.steps], script=LOADING, machines=2)
    assert_equal_runs(outcome, calm)
