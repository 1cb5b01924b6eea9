"""A standby holds a run of the rank most likely needed; one comes only when the job stands."""

from pathlib import Path

import pytest
from harness import Live, assert_equal_runs, run

from trainmover.controller.state import Kind, Outcome
from trainmover.launch.late import start_late

pytestmark = pytest.mark.turns(12)

PACED = ["--pace", "0.03"]
COMPILED = str(Path(__file__).parents[1] / "parallel" / "compiled.py")


def test_when_steps_become_others_standbys_prove_again_what_they_can(undisturbed, tmp_path) -> None:
    hurry = tmp_path / "hurry"
    arguments = ["--steps", "60", "--change-at", "5"]
    proven: list[bool] = []

    def is_proven(live: Live) -> bool:
        return any(m.held is not None and m.proven(0) for m in live.job.machines.values())

    async def scenario(live: Live) -> None:
        await live.until(lambda: bool(live.job.changed))
        proven.append(is_proven(live))
        await live.until(lambda: is_proven(live))
        live.signal_worker(live.job.seats[1])
        await live.incidents_done(1)
        hurry.touch()

    paced = [*arguments, "--pace", "0.2", "--hurry", str(hurry)]
    outcome = run(paced, scenario, machines=2, script=COMPILED)
    assert proven == [False], outcome.sentences
    assert any("makes other steps than those recorded" in text for text in outcome.sentences)
    assert_equal_runs(outcome, undisturbed(arguments, machines=2, script=COMPILED))


def test_the_loss_of_a_held_rank_goes_to_its_holder_and_of_another_too(undisturbed) -> None:
    holders: list[str] = []

    async def scenario(live: Live) -> None:
        await live.holding(2)
        spare = [machine for machine in live.job.machines.values() if machine.held is not None]
        slots = {machine.held: machine.id for machine in spare}
        for slot in (1, 2):
            holders.append(slots.get(slot, "any"))  # type: ignore[call-overload]
            live.handle.kill(live.job.seats[slot])
            await live.incidents_done(slot)

    outcome = run(PACED, scenario, until_done=True, machines=3, standbys=2)
    first, second = outcome.job.incidents
    assert holders == [first.joiner, "any"]
    assert [first.outcome, second.outcome] == [Outcome.DONE] * 2
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=3))


def test_a_machine_that_is_added_ends_the_wait(undisturbed) -> None:
    async def scenario(live: Live) -> None:
        await live.at_step(5)
        await live.until(lambda: live.job.all_recorded)
        live.handle.kill("m2")
        await live.until(lambda: live.job.change is not None and bool(live.job.change.missing))
        late = start_late(live.handle.run, list(live.job.machines))
        assert Path(live.handle.run.directory, late.name).is_dir()
        await live.incidents_done(1)

    outcome = run(PACED, scenario, until_done=True, machines=3, standbys=0, wait_s=600)
    (incident,) = [i for i in outcome.job.incidents if i.ranks]
    assert (incident.kind, incident.outcome, incident.joiner) == (Kind.RECOVERY, Outcome.DONE, "m4")
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=3))
