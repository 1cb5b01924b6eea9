"""Checkpoints while a job runs, and jobs that go on from them: always the undisturbed run."""

from pathlib import Path

import pytest
from harness import Live, Outcomes, assert_equal_runs, run

from trainmover.ids import Epoch, Step
from trainmover.launch.checkpoints import CheckpointOptions
from trainmover.protocol.checkpoint import writing_name
from trainmover.server.checkpoints.check import manifests

pytestmark = pytest.mark.turns(12)

SHARDED = str(Path(__file__).parents[1] / "parallel" / "sharded.py")


async def stop_after_40(live: Live) -> None:
    await live.until(lambda: live.job.checkpoint is not None and live.job.checkpoint.step >= 40)
    live.handle.server.stop(143, "enough", grace_s=20.0)
    await live.until(lambda: live.job.code is not None)


def assert_goes_on(resumed: Outcomes, undisturbed: Outcomes, step: int) -> None:
    """The rest of the rows, bit for bit, and the same end."""
    assert resumed.code == 0, (resumed.text, resumed.sentences)
    rest = {key: row for key, row in undisturbed.rows.items() if key[1] > step}
    mine = {key: row for key, row in resumed.rows.items() if key[1] > step}
    assert mine.keys() == rest.keys()
    assert [key for key in rest if mine[key] != rest[key]] == []
    assert resumed.digests == undisturbed.digests


def test_a_stopped_job_is_resumed_from_the_newest_checkpoint_that_is_whole(
    undisturbed, tmp_path: Path
) -> None:
    steps, folder = ["--steps", "80"], tmp_path / "kept"
    saves = CheckpointOptions(folder=folder, every=10, keep=2)
    folder.mkdir()
    (folder / writing_name(Step(20), Epoch(1))).touch()  # where a folder cannot be made then
    arguments = [*steps, "--pace", "0.03"]
    stopped = run(arguments, stop_after_40, machines=2, standbys=0, checkpoints=saves)
    assert stopped.code == 143
    given_up = [said for said in stopped.sentences if "given up" in said]
    assert given_up[0].startswith("the checkpoint of step 20 was given up (rank ")
    assert "that of step 10 stays" in given_up[0]
    assert stopped.text.startswith("enough.\nThe checkpoint of step"), stopped.text
    (newest, found), (older, _) = manifests(folder)
    state, alike = found.states[0][0], found.states[1][0]
    assert state == alike  # Replicas: written once.
    with (folder / state.file).open("r+b") as file:
        file.seek(state.bytes // 2)
        file.write(b"damaged")
    goes_on = CheckpointOptions(resume=folder, every=10, keep=2)
    resumed = run(arguments, machines=2, standbys=0, checkpoints=goes_on)
    assert any(f"{newest} is passed over" in said for said in resumed.sentences)
    assert_goes_on(resumed, undisturbed(steps, machines=2), int(older.removeprefix("step-")))


def test_state_that_is_nowhere_else_is_taken_from_the_checkpoint_by_fresh_processes(
    undisturbed, tmp_path: Path
) -> None:
    steps, hurry = ["--steps", "120"], tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        await live.until(lambda: live.job.checkpoint is not None)
        await live.at_step(25)
        live.signal_worker("m2")
        await live.incidents_done(1)
        hurry.touch()

    saves = CheckpointOptions(folder=tmp_path / "kept", every=20)
    options = {"script": SHARDED, "machines": 2, "snapshot_every": 0}
    arguments = [*steps, "--pace", "0.1", "--hurry", str(hurry)]
    outcome = run(arguments, scenario, standbys=0, checkpoints=saves, **options)
    (incident,) = outcome.job.incidents
    assert (incident.rung, incident.step) == (3, 20)
    assert incident.redone >= 5
    assert_equal_runs(outcome, undisturbed(steps, **options))


def test_without_a_standby_the_newest_cut_is_written_and_resumed_from(
    undisturbed, tmp_path: Path
) -> None:
    steps, folder = ["--steps", "80"], tmp_path / "kept"

    async def scenario(live: Live) -> None:
        await live.until(lambda: live.job.cut is not None and live.job.cut.step >= 10)
        await live.handle.kill("m2")
        await live.until(lambda: live.job.code is not None)

    saves = CheckpointOptions(folder=folder, every=1000)
    arguments, options = [*steps, "--pace", "0.05"], {"machines": 2, "standbys": 0}
    lost = run(arguments, scenario, checkpoints=saves, no_standby="checkpoint", **options)
    assert lost.code == 1
    ((name, found),) = manifests(folder)
    assert f"The job has ended with a checkpoint of step {found.step}." in lost.text
    assert found.states.keys() == {0, 1}
    goes_on = CheckpointOptions(resume=folder, every=1000)
    resumed = run(arguments, checkpoints=goes_on, **options)
    assert_goes_on(resumed, undisturbed(steps, machines=2), int(name.removeprefix("step-")))
