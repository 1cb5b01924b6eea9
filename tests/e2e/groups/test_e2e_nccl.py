"""Jobs over the stand-in for NCCL, moved, and killed in every place of a step: the bits never
change.

What is compared with is the same job over the stand-in, undisturbed. Beside NCCL the host's
communicator is `native`, also where all else is run on gloo.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nccl import stands_in
from harness import Live, Outcomes, assert_equal_runs, run

from trainmover.communicators import NCCL

pytestmark = pytest.mark.turns(14)
SCRIPTS = Path(__file__).parents[1] / "parallel"
OVER = ["--backend", "nccl"]
PLACES = (
    "m1:compute:12:kill,m2:gate:20:sleep=0.3,m2:gate:20:kill,m3:passed:28:kill,m4:updated:36:kill"
)


@pytest.fixture(autouse=True)
def _over_the_stand_in() -> Iterator[None]:
    """A kernel takes a while: what is read too early is seen."""
    with stands_in(kernel_us=500):
        yield


def over_nccl(script: str, *arguments: str, drill: str = "", **options: int) -> Outcomes:
    path = str(SCRIPTS / f"{script}.py")
    arguments = (*arguments, *OVER)
    return run(list(arguments), script=path, drill=drill, comm="native", gpu_comm=NCCL, **options)


def calm(script: str, *arguments: str, machines: int) -> Outcomes:
    return over_nccl(script, *arguments, machines=machines, standbys=0)


@pytest.mark.parametrize(("script", "machines"), [("replicated", 3), ("fsdp2", 4), ("hsdp", 4)])
def test_deaths_in_every_place_of_a_step(script: str, machines: int) -> None:
    steps = ["--steps", "45"]
    outcome = over_nccl(
        script, *steps, "--pace", "0.05", machines=machines, standbys=4, drill=PLACES
    )
    assert len(outcome.job.incidents) >= 4, outcome.sentences
    assert_equal_runs(outcome, calm(script, *steps, machines=machines))


@pytest.mark.parametrize(("script", "machines"), [("replicated", 3), ("fsdp2", 4), ("hsdp", 4)])
def test_moves(script: str, machines: int, tmp_path: Path) -> None:
    hurry = tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        for count, machine in enumerate(("m1", "m2"), start=1):
            await live.warm(1)
            answer = await live.handle.move(machine)
            assert answer.ok, answer.text
            await live.incidents_done(count)
        hurry.touch()

    steps = ["--steps", "120"]
    path = str(SCRIPTS / f"{script}.py")
    outcome = run(
        [*steps, *OVER, "--pace", "0.1", "--hurry", str(hurry)],
        scenario,
        machines=machines,
        standbys=1,
        script=path,
        comm="native",
        gpu_comm=NCCL,
    )
    assert [i.rung for i in outcome.job.incidents] == [0, 0], outcome.sentences
    for incident in outcome.job.incidents:
        for certificate in incident.certificates:
            assert certificate.direct > 0.9 * certificate.bytes, outcome.sentences
    assert_equal_runs(outcome, calm(script, *steps, machines=machines))


@pytest.mark.parametrize("fails", ["bus", "ecc", "memory"])
def test_a_device_that_fails_costs_its_machine_and_not_the_job(fails: str) -> None:
    """memory: of the standby that comes first, when it is to take a rank's state."""
    arguments = ["--steps", "40", "--pace", "0.02", "--fails"]
    drill = "m2:compute:21:kill" if fails == "memory" else ""
    outcome = over_nccl("failing", *arguments, fails, machines=3, standbys=2, drill=drill)
    last = outcome.job.incidents[-1]
    assert last.machine == "m2", outcome.sentences
    if fails == "memory":
        assert any("out of memory" in text for text in outcome.sentences)
        assert last.joiner == "m5"
    assert_equal_runs(outcome, calm("failing", *arguments, "nothing", machines=3))
