"""A rank is lost behind its last step: what its script does there is done once more, elsewhere."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from harness import Live, Outcomes, assert_equal_runs, run

pytestmark = pytest.mark.turns(12)

SCRIPT = str(Path(__file__).parents[1] / "scripts" / "ending.py")
STEPS = 40


def ends(tail: str, *more: str, pace: float = 0.05, **others: Any) -> Outcomes:
    arguments = ["--tail", tail, "--steps", str(STEPS), "--pace", str(pace), *more]
    return run(arguments, *others.pop("scenario", ()), machines=3, script=SCRIPT, **others)


def said(outcome: Outcomes) -> str:
    return next(line for line in outcome.printed if line.startswith("rank 0 ends"))


def check(outcome: Outcomes, tail: str) -> None:
    calm = ends(tail, pace=0, standbys=0)
    assert_equal_runs(outcome, calm)
    assert said(outcome) == said(calm)


@pytest.mark.parametrize("tail", ["print", "barrier", "average"])
def test_a_rank_lost_in_its_last_step_ends_as_it_would_have(tail: str) -> None:
    outcome = ends(tail, drill=f"m1:passed:{STEPS}:kill")
    check(outcome, tail)


def lost_at_the_end(tail: str, folder: Path) -> Outcomes:
    """Rank 0 waits in its script's last lines, and is killed there."""
    go, awaited = folder / "go", folder / "go.awaited"

    async def scenario(live: Live) -> None:
        while not awaited.exists():
            await asyncio.sleep(0.02)
        await live.until(lambda: tail == "held" or len(live.job.finished) == 2)
        live.signal_worker("m1")
        go.touch()
        await live.until(lambda: len(live.job.incidents) == 1)

    return ends(tail, "--go", str(go), scenario=[scenario])


@pytest.mark.parametrize("tail", ["wait", "held"])
def test_a_rank_lost_in_its_scripts_last_lines_ends_as_it_would_have(
    tail: str, tmp_path: Path
) -> None:
    outcome = lost_at_the_end(tail, tmp_path)
    check(outcome, tail)


@pytest.mark.parametrize("tail", ["summed", "halved"])
def test_what_a_rank_alone_does_behind_its_last_step_is_made_again_by_all(
    tail: str, tmp_path: Path
) -> None:
    """A collective whose result is gone with the rank; a change that others have made already."""
    outcome = lost_at_the_end(tail, tmp_path)
    check(outcome, tail)
    assert outcome.job.incidents[-1].rung == 2
