"""First steps are stored once per role, and whoever needs them finds them."""

from pathlib import Path

import pytest
from harness import Live, assert_equal_runs, run

from trainmover.controller.state import Outcome

pytestmark = pytest.mark.turns(12)

STEPS = ["--steps", "200"]


def test_a_role_is_recorded_by_two_ranks_and_serves_all(undisturbed) -> None:
    """Lost: the machine that keeps one of the two records, then one that made none.

    The state is large and its sources are slow: several of them give it.
    """
    steps = [*STEPS, "--ballast", "32"]

    async def scenario(live: Live) -> None:
        for number, machine in enumerate(("m2", "m3"), start=1):
            await live.warm(1)
            if number > 1:  # The rate has changed for the first time: all know by then who does.
                await live.until(lambda: live.step() > 12)
            live.handle.kill(machine)
            await live.incidents_done(number)

    arguments = [*steps, "--pace", "0.03"]
    outcome = run(arguments, scenario, machines=4, standbys=2, state_bandwidth=50_000_000)
    recorded = outcome.job.recorded
    assert {rank: said.record_of for rank, said in recorded.items()} == {
        0: None, 1: None, 2: 0, 3: 0,
    }  # fmt: skip
    assert [recorded[rank].bytes == 0 for rank in range(4)] == [False, False, True, True]
    assert all(0 < said.bytes < said.bytes_full for said in recorded.values() if said.bytes)
    assert len({(said.signature, said.trace) for said in recorded.values()}) == 1
    assert [incident.outcome for incident in outcome.job.incidents] == [Outcome.DONE] * 2
    certificates = [c for incident in outcome.job.incidents for c in incident.certificates]
    assert all(c.equal for c in certificates)
    assert all(sum(c.given.values()) == c.bytes for c in certificates)
    assert all(len(c.given) >= 2 for c in certificates)
    assert_equal_runs(outcome, undisturbed(steps, machines=4))


@pytest.mark.parametrize("record", [pytest.param("moments", marks=pytest.mark.soak), "full"])
def test_both_kinds_of_record_serve_a_standby(record: str, undisturbed) -> None:
    async def scenario(live: Live) -> None:
        await live.warm(1)
        live.signal_worker("m1")
        await live.incidents_done(1)

    outcome = run([*STEPS, "--pace", "0.03"], scenario, machines=2, record=record)
    said = outcome.job.recorded[0]
    assert (said.bytes > said.bytes_full * 0.9) == (record == "full")
    assert_equal_runs(outcome, undisturbed(STEPS, machines=2))


STRAY = """
import time
from pathlib import Path
import torch, torch.distributed as dist
import trainmover as tm
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.track(model=model, optimizer=optimizer)
{extra}
@job.step
def step(i):
    time.sleep(0.02)
    loss = model(torch.full((2, 8), i / 100)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
for i in job.batches(range(100)):
    step(i)
"""
BY_CHANCE = """
if job.is_shadow:
    dist.barrier()
else:
    dist.all_reduce(torch.ones(5), op=dist.ReduceOp.MAX)
"""
EDITED = """
if job.rank == 0:
    Path(__file__).write_text(Path(__file__).read_text() + "# edited")
"""


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (BY_CHANCE, ["is barrier of nothing", "had recorded allreduce of 5 float32, MAX"]),
        (EDITED, ["recorded with another text of the script than lies here"]),
    ],
    ids=["by-chance", "edited"],
)
def test_a_standby_that_the_record_does_not_fit_says_so_and_the_job_trains_on(
    extra: str, said: list[str], tmp_path: Path
) -> None:
    notes: list[str] = []

    async def scenario(live: Live) -> None:
        await live.until(lambda: bool(live.sandbox_failed))
        notes.extend(failed.reason for failed in live.sandbox_failed)

    script = tmp_path / "train.py"
    script.write_text(STRAY.format(extra=extra))
    outcome = run([], scenario, machines=2, standbys=1, script=str(script))
    assert outcome.code == 0, outcome.text
    assert len(outcome.rows) == 200
    assert all(part in notes[0] for part in said), notes


@pytest.mark.parametrize(
    "point",
    ["gate", *(pytest.param(point, marks=pytest.mark.soak) for point in ("passed", "fetch"))],
)
def test_a_loss_while_ranks_agree_on_who_stores_what(point: str, undisturbed) -> None:
    drill = f"m2:{point}:{4 if point == 'fetch' else 3}:kill"
    outcome = run([*STEPS, "--pace", "0.01"], machines=3, standbys=1, drill=drill)
    assert_equal_runs(outcome, undisturbed(STEPS, machines=3))
