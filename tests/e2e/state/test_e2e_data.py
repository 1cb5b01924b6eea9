"""Every kind of loader over a move and a loss: the same samples in the same steps, each once."""

from pathlib import Path

import psutil
import pytest
from harness import Live, Outcomes, assert_equal_runs, run

from trainmover.journal.samples import data_passes

pytestmark = pytest.mark.turns(12)

DATA = str(Path(__file__).parents[1] / "data.py")
SHARDED = str(Path(__file__).parents[1] / "parallel" / "sharded.py")


async def move_and_lose(live: Live) -> None:
    await live.warm()
    await live.at_step(8)
    leaver = live.job.seats[0]
    assert (await live.handle.move(leaver)).ok
    await live.warm()
    assert_only_the_last_run_has_processes(live.pids[leaver][0])
    await live.handle.kill(live.job.seats[1])
    await live.incidents_done(2)


def assert_only_the_last_run_has_processes(worker: int) -> None:
    """Of a loader that has two: those of the runs before are gone."""
    assert len(psutil.Process(worker).children(recursive=True)) <= 2


def assert_each_once(outcomes: Outcomes) -> None:
    passes = data_passes(outcomes.used)
    assert passes
    assert not any(whole.repeated for whole in passes)
    assert len(outcomes.used) == len(outcomes.rows)


@pytest.mark.parametrize(
    "loader",
    [
        "zipped",
        *(
            pytest.param(loader, marks=pytest.mark.soak)
            for loader in (
                "plain",
                "processes",
                "beside",
                "alternating",
                "accumulated",
                "stream",
                "resumable",
                "items",
                "endless",
            )
        ),
    ],
)
def test_samples_are_used_once_and_where_they_were(loader: str, tmp_path: Path) -> None:
    async def scenario(live: Live) -> None:
        await move_and_lose(live)
        (tmp_path / "hurry").touch()

    arguments = ["--loader", loader, "--steps", "30"]
    paced = [*arguments, "--pace", "0.08", "--hurry", str(tmp_path / "hurry")]
    disturbed = run(paced, scenario, machines=2, script=DATA)
    assert [incident.rung for incident in disturbed.job.incidents] in ([0, 1], [0, 2])
    assert_equal_runs(disturbed, run(arguments, machines=2, standbys=0, script=DATA))
    assert_each_once(disturbed)


@pytest.mark.soak
def test_steps_made_again_from_a_snapshot_use_the_same_samples(tmp_path: Path) -> None:
    async def lose(live: Live) -> None:
        await live.until(lambda: live.job.cut is not None)
        await live.warm()
        await live.at_step(20)
        await live.handle.kill(live.job.seats[1])
        await live.incidents_done(1)
        (tmp_path / "hurry").touch()

    steps = ["--steps", "40"]
    paced = [*steps, "--pace", "0.08", "--hurry", str(tmp_path / "hurry")]
    disturbed = run(paced, lose, machines=3, script=SHARDED)
    assert [incident.rung for incident in disturbed.job.incidents] == [2]
    assert disturbed.job.incidents[0].redone > 0
    assert_equal_runs(disturbed, run(steps, machines=3, standbys=0, script=SHARDED))
    assert_each_once(disturbed)
