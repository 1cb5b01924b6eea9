"""Groups that a script makes while it trains survive moves and losses, or the job says they do not.

A joiner has made other groups than the ranks that stayed: those of its shadow run, and none of the
steps it passes over.
"""

from pathlib import Path

import pytest
from harness import Live, Outcomes, assert_equal_runs, run

SCRIPT = str(Path(__file__).parent / "scripts" / "groups_made.py")
STEPS = "45"


def moved_then_lost(when: str) -> Outcomes:
    """Rank 0 is moved, then rank 1's process dies; each a while after the first steps."""

    async def scenario(live: Live) -> None:
        await live.warm(2)
        await live.at_step(max(12, live.step() + 1))
        answer = await live.handle.move("m1")
        assert answer.ok, answer
        await live.incidents_done(1)
        await live.at_step(live.step() + 3)
        live.signal_worker("m2")
        await live.incidents_done(2)

    arguments = ["--when", when, "--steps", STEPS, "--pace", "0.25"]
    return run(arguments, scenario, machines=3, standbys=2, script=SCRIPT)


@pytest.mark.parametrize("when", ["step", "pass", "lazy"])
def test_groups_made_while_training_go_with_the_ranks(when: str) -> None:
    disturbed = moved_then_lost(when)
    calm = run(
        ["--when", when, "--steps", STEPS, "--pace", "0"], machines=3, standbys=0, script=SCRIPT
    )
    assert len(disturbed.job.incidents) == 2, disturbed.sentences
    assert_equal_runs(disturbed, calm)
