"""State that one rank alone holds: its loss takes all ranks back to a cut, and no bit changes."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Live, Outcomes, Scenario, assert_equal_runs, run

pytestmark = pytest.mark.turns(12)

FOLDER = Path(__file__).parents[1] / "parallel"
SHARDED, EVALUATED = str(FOLDER / "sharded.py"), str(FOLDER / "evaluated.py")
STEPS, PACE = 100, 0.03
Undisturbed = Callable[..., Outcomes]


async def crash(live: Live, chance: random.Random) -> None:
    await live.at_step(live.step() + chance.randrange(1, 9))
    await asyncio.sleep(chance.random() * 0.1)  # any moment of a step
    live.signal_worker(live.job.seats[chance.randrange(len(live.job.seats))])


def disturbed(
    scenario: Scenario,
    hurry: Path,
    *more: str,
    machines: int = 3,
    standbys: int = 1,
    nproc: int = 1,
) -> Outcomes:
    """Slow until `hurry` is there. more: flags."""
    arguments = ["--steps", str(STEPS), "--pace", str(PACE), "--hurry", str(hurry), *more]
    shape = {"machines": machines, "standbys": standbys, "nproc": nproc}
    return run(arguments, scenario, **shape, script=SHARDED)


def check(outcome: Outcomes, calm: Undisturbed, *, machines: int = 3) -> None:
    assert all(certificate.equal for i in outcome.job.incidents for certificate in i.certificates)
    arguments = ["--steps", str(STEPS)]
    assert_equal_runs(outcome, calm(arguments, machines=1, nproc=machines, script=SHARDED))


def test_losses_of_sharded_state_are_made_good(tmp_path: Path, undisturbed: Undisturbed) -> None:
    """A move, then a crash that a standby takes over, then one without a standby."""
    hurry = tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        chance = random.Random(1)
        await live.until(lambda: live.job.cut is not None)
        await live.warm(1)
        answer = await live.handle.move(live.job.seats[0])
        assert answer.ok, answer.text
        await live.until(lambda: live.job.cut is not None and live.job.cut.step > answer_step(live))
        for count in (2, 3):
            await crash(live, chance)
            await live.incidents_done(count)
        hurry.touch()

    outcome = disturbed(scenario, hurry)
    assert [i.rung for i in outcome.job.incidents] == [0, 2, 2], outcome.sentences
    assert all(i.downtime_ms is not None for i in outcome.job.incidents)
    check(outcome, undisturbed)


@pytest.mark.parametrize("nproc", [1, 2])
def test_survivors_go_back_where_they_stand(
    nproc: int, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    """Their script is not run again. The machine that is lost had the copy of one of them."""
    hurry, runs, standing = tmp_path / "hurry", tmp_path / "runs", []

    async def scenario(live: Live) -> None:
        await live.until(lambda: live.job.cut is not None)
        await live.warm(1)
        standing.extend(runs.read_text().split())
        await live.handle.kill(live.job.seats[1])
        await live.incidents_done(1)
        hurry.touch()

    outcome = disturbed(scenario, hurry, "--runs", str(runs), machines=3 - nproc // 2, nproc=nproc)
    assert [i.rung for i in outcome.job.incidents] == [2], outcome.sentences
    now = runs.read_text().split()
    again = [one for one in set(standing) if now.count(one) > standing.count(one)]
    assert len(again) <= nproc, "besides the standby's, which may have run for another rank"
    check(outcome, undisturbed, machines=(3 - nproc // 2) * nproc)


def test_state_of_a_device_is_kept_while_the_next_step_computes(
    tmp_path: Path, undisturbed: Undisturbed
) -> None:
    hurry, late = tmp_path / "hurry", tmp_path / "late"

    async def scenario(live: Live) -> None:
        chance = random.Random(2)
        for count in (1, 2):
            late.unlink(missing_ok=True)
            await live.until(late.exists)
            await live.warm(1)
            await crash(live, chance)
            await live.incidents_done(count)
        hurry.touch()

    arguments = ["--steps", str(STEPS), "--pace", str(PACE), "--hurry", str(hurry)]
    arguments += ["--distant", str(late)]
    outcome = run(arguments, scenario, machines=3, standbys=2, script=SHARDED, snapshot_every=5)
    assert [i.rung for i in outcome.job.incidents] == [2, 2], outcome.sentences
    calm = ["--steps", str(STEPS), "--distant", str(tmp_path / "calm")]
    assert_equal_runs(outcome, undisturbed(calm, machines=1, nproc=3, script=SHARDED))


@pytest.mark.soak
def test_a_machine_and_its_buddy_may_go_together_if_there_is_one_more_copy(
    tmp_path: Path, undisturbed: Undisturbed
) -> None:
    hurry = tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        await live.warm(2)
        await live.until(lambda: live.job.cut is not None and len(live.job.cut.further) == 4)
        for machine in live.job.seats[1:3]:
            live.handle.kill(machine)
        await live.until(lambda: len(set(live.job.seats) & {"m2", "m3"}) == 0)
        await live.until(lambda: live.job.change is None)
        hurry.touch()

    arguments = ["--steps", str(STEPS), "--pace", str(PACE), "--hurry", str(hurry)]
    outcome = run(arguments, scenario, machines=4, standbys=2, script=SHARDED, snapshot_copies=2)
    assert outcome.job.incidents[-1].rung == 2, outcome.sentences
    check(outcome, undisturbed, machines=4)


def answer_step(live: Live) -> int:
    return live.job.incidents[-1].step or 0


def test_an_evaluation_that_is_cut_short_is_made_again(
    tmp_path: Path, undisturbed: Undisturbed
) -> None:
    """The survivors stand in a collective between two steps, on which the next step depends."""
    hurry = tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        await live.until(lambda: live.job.cut is not None)
        await live.warm(1)
        while not (tmp_path / "waits").exists():
            await asyncio.sleep(0.05)
        live.signal_worker(live.job.seats[1])
        await live.incidents_done(1)
        hurry.touch()

    arguments = ["--steps", str(STEPS), "--pace", str(PACE), "--hurry", str(hurry)]
    outcome = run(arguments, scenario, machines=3, script=EVALUATED, snapshot_every=10)
    assert [i.rung for i in outcome.job.incidents] == [2], outcome.sentences
    why = outcome.job.incidents[0].why_rung
    assert "between two steps" in why or "is on no machine that lives" in why
    arguments = ["--steps", str(STEPS)]
    assert_equal_runs(outcome, undisturbed(arguments, machines=1, nproc=3, script=EVALUATED))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_any_losses_one_after_the_other(
    seed: int, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    hurry = tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        chance = random.Random(seed)
        await live.until(lambda: live.job.cut is not None)
        for count in range(1, 6):
            if chance.random() < 0.3:
                await live.warm(1)
            await crash(live, chance)
            await live.incidents_done(count)
        hurry.touch()

    outcome = disturbed(scenario, hurry, machines=2 + seed % 3)
    assert {i.rung for i in outcome.job.incidents if i.ranks} == {2}, outcome.sentences
    check(outcome, undisturbed, machines=2 + seed % 3)


@pytest.mark.soak
def test_a_machine_that_dies_while_all_go_back_is_the_next_incident(
    tmp_path: Path, undisturbed: Undisturbed
) -> None:
    hurry = tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        await live.until(lambda: live.job.cut is not None)
        await live.warm(2)
        await live.handle.kill(live.job.seats[0])
        await live.until(lambda: live.job.change is not None and live.job.change.back)
        await live.handle.kill(live.job.seats[2])  # Not the buddy of the first.
        await live.until(lambda: live.job.change is None and len(live.job.incidents) > 1)
        await live.incidents_done(len(live.job.incidents))
        hurry.touch()

    outcome = disturbed(scenario, hurry, machines=4, standbys=2)
    assert {i.rung for i in outcome.job.incidents} == {2}, outcome.sentences
    check(outcome, undisturbed, machines=4)
