"""State that no state_dict has is put back by a retry, and comes with a rank that is taken over."""

from pathlib import Path

import pytest
from harness import Live, assert_equal_runs, run

pytestmark = pytest.mark.turns(12)

BESIDE = str(Path(__file__).parents[1] / "scripts" / "beside.py")


@pytest.mark.parametrize("habit", ["powersgd", "feedback", "buffer"])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_is_taken_over_goes_on_alike(
    habit: str, lost: int, undisturbed, tmp_path: Path
) -> None:
    hurry = tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        await live.at_step(12)
        await live.holding()
        live.signal_worker(live.job.seats[lost])
        await live.incidents_done(1)
        hurry.touch()

    arguments = ["--habit", habit, "--steps", "60"]
    paced = [*arguments, "--pace", "0.08", "--hurry", str(hurry)]
    outcome = run(paced, scenario, machines=2, script=BESIDE)
    assert_equal_runs(outcome, undisturbed(arguments, machines=2, script=BESIDE))
