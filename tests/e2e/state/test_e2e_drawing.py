"""How ordinary scripts draw, over a move and a loss: every number is that of an undisturbed run."""

from pathlib import Path

import pytest
from harness import Live, assert_equal_runs, run

pytestmark = pytest.mark.turns(12)

SCRIPT = str(Path(__file__).parents[1] / "scripts" / "drawing.py")
HABITS = [
    "own_generators",
    pytest.param("stateful_processes", marks=pytest.mark.soak),  # Its standby takes long.
    *("plain_stream", "set_epoch", "ahead", "counted", "without_loader", "far_ahead"),
]


@pytest.mark.parametrize("habit", HABITS)
def test_the_same_is_drawn(habit: str, tmp_path: Path) -> None:
    async def scenario(live: Live) -> None:
        await live.warm()
        await live.at_step(8)
        assert (await live.handle.move(live.job.seats[0])).ok
        await live.warm()
        await live.handle.kill(live.job.seats[1])
        await live.incidents_done(2)
        (tmp_path / "hurry").touch()

    arguments = ["--habit", habit, "--steps", "30"]
    paced = [*arguments, "--pace", "0.2", "--hurry", str(tmp_path / "hurry")]
    disturbed = run(paced, scenario, machines=2, script=SCRIPT, seed=7)
    rungs = [incident.rung for incident in disturbed.job.incidents]
    assert rungs in ([0, 1], [0, 2]), disturbed.sentences
    assert_equal_runs(disturbed, run(arguments, machines=2, standbys=0, script=SCRIPT, seed=7))
