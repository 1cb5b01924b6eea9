"""Scripts for transformers, Accelerate and Lightning, as their users write them: no bit changes."""

import pytest
from harness import Live, Outcomes, run

from tests.frameworks import FOLDER, SCRIPTS, frameworks, packages

__all__ = ["frameworks", "packages"]
pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("frameworks")]

FAULTS = ["m2:compute:30:kill", "m1:gate:40:kill", "m2:passed:30:kill", "m2:fetch:35:kill"]


def train(name: str, **others: object) -> Outcomes:
    return run([], script=str(FOLDER / f"{name}.py"), **others)  # type: ignore[arg-type]


def results(outcome: Outcomes) -> set[str]:
    """What a script has printed of its numbers."""
    lines = "".join(outcome.printed).splitlines()
    said = {one for one in lines if one.startswith(("epoch", "{'", "rank", "seen"))}
    return {one for one in said if "runtime" not in one}


def assert_same(outcome: Outcomes, calm: Outcomes) -> None:
    assert outcome.code == calm.code == 0, (outcome.text, outcome.sentences)
    assert outcome.rows == calm.rows
    assert outcome.digests == calm.digests
    assert results(outcome) == results(calm) != set()


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_machine_is_lost(name: str, fault: str) -> None:
    outcome = train(name, drill=fault)
    assert_same(outcome, train(name, standbys=0))
    assert [one.machine for one in outcome.job.incidents if one.downtime_ms] == [fault[:2]]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_machine_is_moved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACE_S", "0.25")

    async def move(live: Live) -> None:
        await live.holding()
        assert (await live.handle.move("m2")).ok
        await live.incidents_done(1)

    assert_same(train(name, scenario=move), train(name, standbys=0))
