"""Agents that carry what others say: a real job whose relays die, stand still and leave."""

import os
import signal

import psutil
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
    relays = set(behind(server).values())
    return bool(relays) and len(behind(server)) + len(relays) == len(server.control.members)


def agent_of(live: Live, machine: MachineId) -> int:
    parent = psutil.Process(live.pids[machine][0]).parent()
    assert parent is not None
    return parent.pid


def test_a_relay_dies_and_its_members_go_on(undisturbed) -> None:
    found: dict[str, object] = {}

    async def scenario(live: Live) -> None:
        await live.warm(1)
        await live.until(lambda: all_are_behind(live))
        await live.at_step(live.step() + 5)
        member, relay = next(iter(behind(live.handle.server).items()))
        os.kill(agent_of(live, relay), signal.SIGKILL)
        await live.incidents_done(1)
        await live.at_step(live.step() + 5)
        found["lost"] = relay
        found["there"] = set(live.job.machines)
        assert member in live.job.machines

    outcome = run(
        ["--pace", "0.04"], scenario, until_done=True, machines=MACHINES, relays_above=ABOVE
    )
    assert outcome.code == 0
    assert len(outcome.job.incidents) == 1
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=MACHINES))
