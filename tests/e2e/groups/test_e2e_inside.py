"""The workers of a standby run the script together: when one of them cannot, none of them waits."""

from pathlib import Path

import pytest
from harness import Live, Outcomes, run

from trainmover.controller.state import MachineState, Outcome

SCRIPT = str(Path(__file__).parents[1] / "bad" / "inside.py")
pytestmark = pytest.mark.soak


def job_of_pairs(scenario, tmp_path: Path, *arguments: str) -> Outcomes:
    until = tmp_path / "until"

    async def then_end(live: Live) -> None:
        await scenario(live)
        until.touch()

    every = ["--until", str(until), *arguments]
    outcome = run(every, then_end, machines=2, nproc=2, standbys=1, script=SCRIPT)
    assert outcome.code == 0, (outcome.text, outcome.sentences)
    return outcome


def test_the_one_that_raises_says_why_and_the_other_says_nothing(tmp_path: Path) -> None:
    said: list[str] = []

    async def scenario(live: Live) -> None:
        await live.until(lambda: any(machine.note for machine in live.job.machines.values()))
        await live.at_step(live.step() + 5)
        said.extend(fact.reason for fact in live.sandbox_failed)

    job_of_pairs(scenario, tmp_path, "--raise", "yes")
    assert len(said) == 1
    assert "ValueError: only the second" in said[0]


def test_one_that_dies_takes_the_other_with_it_and_both_begin_again(tmp_path: Path) -> None:
    stand = tmp_path / "stand"

    async def scenario(live: Live) -> None:
        await live.until(
            lambda: any(m.state is MachineState.WARMING for m in live.job.machines.values())
        )
        before = dict(live.pids["m3"])
        live.signal_worker("m3", local_rank=1)
        await live.until(
            lambda: all(live.pids["m3"][local] != pid for local, pid in before.items())
        )
        stand.touch()
        await live.warm(1)
        assert not live.sandbox_failed
        live.signal_worker("m1")
        await live.incidents_done(1)

    outcome = job_of_pairs(scenario, tmp_path, "--stand", str(stand))
    assert [incident.outcome for incident in outcome.job.incidents] == [Outcome.DONE]
