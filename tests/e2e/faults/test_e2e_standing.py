"""A rank that stands still is found, ended and replaced; one with a good reason is left alone."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.e2e.harness import Live, assert_equal_runs, run
from trainmover.controller.state import Incident, Outcome

pytestmark = pytest.mark.turns(12)

PACED = ["--pace", "0.02"]
LEARNED = 45


def incident_of(incidents: tuple[Incident, ...], number: int) -> Incident:
    found = incidents[number - 1]
    assert found.outcome is Outcome.DONE
    return found


async def stalls(live: Live, order: Path, kind: str) -> None:
    """Until a rank has stood, and all have gone on."""
    order.write_text(kind)
    await live.until(lambda: not order.exists())
    await live.at_step(live.step() + 20)


def detection_s(found: Incident) -> float:
    return (found.marks["detect"] - found.marks["heard"]) / 1e6


def test_who_stands_in_its_script_or_holds_the_interpreter_is_replaced(tmp_path: Path) -> None:
    async def scenario(live: Live) -> None:
        await live.warm(2)
        await live.at_step(LEARNED)
        await stalls(live, Path(tmp_path, "m1"), "evaluation")
        await stalls(live, Path(tmp_path, "m1-between"), "undeclared")
        await stalls(live, Path(tmp_path, "m1-between"), "undeclared gil")
        assert live.job.incidents == ()
        Path(tmp_path, "m2").write_text("loop")
        await live.incidents_done(1)
        await live.holding()
        await live.at_step(live.step() + LEARNED)
        Path(tmp_path, "m3").write_text("gil")
        await live.incidents_done(2)

    arguments = [*PACED, "--stall", str(tmp_path)]
    outcome = run(arguments, scenario, until_done=True, standbys=2)
    assert outcome.code == 0, outcome.text
    looped, deaf = (incident_of(outcome.job.incidents, number) for number in (1, 2))
    assert looped.machine == "m2"
    assert "rank 1 on m2 stood still" in looped.cause
    assert "train.py line" in looped.cause
    assert "in stall" in looped.stacks[1]
    assert deaf.machine == "m3"
    assert "executes no Python" in deaf.cause
    assert "in stall" in deaf.stacks[2]
    undisturbed = run(["--steps", outcome.steps, "--pace", "0"], standbys=0)
    assert_equal_runs(outcome, undisturbed)
    print(f"detected after {detection_s(looped):.2f} s and {detection_s(deaf):.2f} s")


@pytest.mark.soak
def test_a_stopped_process_is_ended_and_one_that_goes_on_in_time_is_not(tmp_path: Path) -> None:
    async def scenario(live: Live) -> None:
        await live.holding()
        await live.at_step(LEARNED)
        live.signal_worker("m1", signal.SIGSTOP)
        await asyncio.sleep(0.2)  # How long it is stopped is the fact under test.
        live.signal_worker("m1", signal.SIGCONT)
        await live.at_step(live.step() + 20)
        assert live.job.incidents == ()
        live.signal_worker("m2", signal.SIGSTOP)
        await live.incidents_done(1)

    outcome = run(PACED, scenario, until_done=True)
    assert outcome.code == 0, outcome.text
    stopped = incident_of(outcome.job.incidents, 1)
    assert "its process is stopped" in stopped.cause
    assert "state T" in stopped.stacks[1]
    assert_equal_runs(outcome, run(["--steps", outcome.steps, "--pace", "0"], standbys=0))


@pytest.mark.soak
def test_the_second_time_the_machine_goes_and_alone_it_is_respawned(tmp_path: Path) -> None:
    """No standby: the machine itself takes its rank again, also when it would be given up."""

    async def scenario(live: Live) -> None:
        for number in (1, 2):
            await live.at_step(live.step() + LEARNED)
            Path(tmp_path, "m2").write_text("lock")
            await live.incidents_done(number)

    arguments = [*PACED, "--stall", str(tmp_path)]
    outcome = run(arguments, scenario, until_done=True, standbys=0)
    assert outcome.code == 0, outcome.text
    assert [incident.machine for incident in outcome.job.incidents] == ["m2", "m2"]
    assert "train.py line" in outcome.job.incidents[1].cause
    assert_equal_runs(outcome, run(["--steps", outcome.steps, "--pace", "0"], standbys=0))


@pytest.mark.soak
def test_a_survivor_that_is_stuck_when_another_dies_is_ended_too(tmp_path: Path) -> None:
    async def scenario(live: Live) -> None:
        await live.warm(2)
        await live.at_step(LEARNED)
        order = Path(tmp_path, "m2")
        order.write_text("loop")
        await live.until(lambda: live.step() > 0 and not order.exists())
        live.signal_worker("m3")
        await live.until(lambda: len(live.job.incidents) >= 2)
        await live.incidents_done(2)

    arguments = [*PACED, "--stall", str(tmp_path)]
    outcome = run(arguments, scenario, until_done=True, standbys=2)
    assert outcome.code == 0, outcome.text
    assert "rank 1 on m2 stood still" in outcome.job.incidents[-1].cause
    assert_equal_runs(outcome, run(["--steps", outcome.steps, "--pace", "0"], standbys=0))


CROSSED = '''"""In step 60 one rank sums before its update, and the other only behind it."""
import time
import torch
import torch.distributed as dist
import trainmover as tm

job = tm.attach()
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.track(model=model, optimizer=optimizer)
dataset = torch.utils.data.TensorDataset(torch.randn(8, 4))

@job.step
def step(x):
    time.sleep(0.02)
    total = model(x).square().mean()
    total.backward()
    if job.steps < 60 or job.rank == 0:
        dist.all_reduce(total.detach())
    optimizer.step()
    if job.steps >= 60 and job.rank == 1:
        dist.all_reduce(total.detach())

for (x,) in job.batches(torch.utils.data.DataLoader(dataset, 4), passes=None):
    step(x)
'''


def test_ranks_that_wait_for_each_other_end_the_job_in_a_sentence(tmp_path: Path) -> None:
    script = tmp_path / "crossed.py"
    script.write_text(CROSSED)
    outcome = run([], machines=2, standbys=0, script=str(script))
    assert (outcome.code, outcome.job.incidents) == (1, ())
    for line in (20, 21):
        assert f"crossed.py line {line} for rank" in outcome.text
    assert "Ranks 0 and 1 wait for each other: rank 0 in allreduce of group 0" in outcome.text
