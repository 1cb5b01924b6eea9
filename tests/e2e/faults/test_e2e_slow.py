"""A machine whose worker is stopped a third of the time is found, its ranks are moved, and that is
measured."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from harness import Live, assert_equal_runs, run

from trainmover.controller.policies.stragglers.known import Effect
from trainmover.controller.state import Outcome

pytestmark = pytest.mark.turns(12)

STOPS_S, RUNS_S = 0.03, 0.06
PACED = ["--pace", "0.1", "--naps", "20"]


@asynccontextmanager
async def kept_from_running(pid: int) -> AsyncIterator[None]:
    """A third of the time, whatever it does: its machine is slow."""

    async def cycle() -> None:
        try:
            while True:
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(STOPS_S)
                os.kill(pid, signal.SIGCONT)
                await asyncio.sleep(RUNS_S)
        finally:
            os.kill(pid, signal.SIGCONT)

    task = asyncio.ensure_future(cycle())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, ProcessLookupError):
            await task


def test_a_slow_machine_is_found_left_and_cordoned_and_no_bit_differs() -> None:
    async def scenario(live: Live) -> None:
        await live.holding()
        await live.at_step(live.step() + 30)
        async with kept_from_running(live.pids["m2"][0]):
            await live.incidents_done(1)
            await live.until(lambda: live.job.stragglers.moves[-1].effect is not Effect.OPEN)

    disturbed = run(PACED, scenario, until_done=True, machines=3, stragglers="act")
    assert disturbed.code == 0, disturbed.text
    (incident,) = disturbed.job.incidents
    assert (incident.machine, incident.joiner, incident.outcome) == ("m2", "m4", Outcome.DONE)
    (move,) = disturbed.job.stragglers.moves
    assert move.effect is Effect.HELPED, move
    assert move.own_ms > 1.2 * move.usual_ms
    assert disturbed.job.cordoned["m2"].reason.startswith("slow: ")
    assert any("m2 is slow" in sentence for sentence in disturbed.sentences)
    assert any("it has helped" in sentence for sentence in disturbed.sentences)
    undisturbed = run(["--pace", "0", "--steps", disturbed.steps], stragglers="off")
    assert_equal_runs(disturbed, undisturbed)
