"""Agents that carry what others say: a real job whose relays die, stand still and leave."""

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from commanded import commanded
from harness import Live, assert_equal_runs, run

from trainmover.ids import MachineId
from trainmover.server.run import Server

MACHINES = 4
ABOVE = 3
"""So that groups are of two."""


def behind(server: Server) -> dict[MachineId, MachineId]:
    """Machine -> the relay whose lane is its link."""
    members = server.control.members.items()
    return {name: link.relay for name, link in members if link.relay is not None}


def all_are_behind(live: Live) -> bool:
    """Whether all machines are but those that relay."""
    server = live.handle.server
    carried, trunks = behind(server), server.control.carrying.trunks
    return bool(carried) and len(carried) + len(trunks) == len(server.control.members)


def agent_of(live: Live, machine: MachineId) -> int:
    parent = psutil.Process(live.pids[machine][0]).parent()
    assert parent is not None
    return parent.pid


pytestmark = pytest.mark.turns(8)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "stands still"])
def test_a_relay_is_lost_and_those_behind_it_go_on(undisturbed, number: int) -> None:
    struck: list[tuple[MachineId, set[MachineId]]] = []

    async def scenario(live: Live) -> None:
        await live.warm(1)
        await live.until(lambda: all_are_behind(live))
        await live.at_step(live.step() + 5)
        relay = next(iter(behind(live.handle.server).values()))
        agent = agent_of(live, relay)
        struck.append((relay, set(live.job.machines) - {relay}))
        os.kill(agent, number)
        await live.incidents_done(1)
        await live.at_step(live.step() + 5)
        if number == signal.SIGSTOP:
            os.kill(agent, signal.SIGCONT)
        assert struck[0][1] <= set(live.job.machines)
        await live.until(lambda: all_are_behind(live))

    outcome = run(
        ["--pace", "0.04"], scenario, until_done=True, machines=MACHINES, relays_above=ABOVE
    )
    assert outcome.code == 0
    assert [incident.lost for incident in outcome.job.incidents] == [(struck[0][0],)]
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=MACHINES))


def test_a_worker_behind_a_relay_dies(undisturbed) -> None:
    async def scenario(live: Live) -> None:
        await live.warm(1)
        await live.until(lambda: all_are_behind(live))
        member = next(name for name in behind(live.handle.server) if name in live.job.seats)
        live.signal_worker(member)
        await live.incidents_done(1)
        await live.at_step(live.step() + 5)

    outcome = run(
        ["--pace", "0.04"], scenario, until_done=True, machines=MACHINES, relays_above=ABOVE
    )
    assert outcome.code == 0
    assert [incident.rung for incident in outcome.job.incidents] in ([1], [2])
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=MACHINES))


def test_a_controller_that_comes_back_has_relays_again(undisturbed, tmp_path: Path) -> None:
    flags = ["--machines", str(MACHINES), "--standbys", "1", "--relays-above", str(ABOVE)]
    with commanded(tmp_path, *flags) as run:
        run.until_warm(1)
        run.until(_all_behind)
        run.steps_more(5)
        run.the("controller").kill()
        run.until(lambda status: status["controller"]["restarts"] and _all_behind(status))
        run.steps_more(5)
        outcome = run.end()
        psutil.wait_procs(run.family, timeout=5)
        assert run.left() == []
    assert (outcome.job.takeovers, outcome.job.incidents) == (1, ())
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=MACHINES))


def _all_behind(status: dict[str, Any]) -> bool:
    carried = sum(map(len, status["relays"].values()))
    return carried > 0 and carried + len(status["relays"]) == len(status["machines"])
