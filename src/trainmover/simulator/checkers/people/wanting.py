# SPDX-License-Identifier: Apache-2.0
"""What a job is to have a while after nothing goes wrong any more: standbys that are ready, and new
cuts, checkpoints and rounds. Whatever may rightly be missing is known by what went wrong."""

from trainmover.controller.state import Job, Machine, MachineState
from trainmover.ids import Step
from trainmover.simulator.chance import Chance
from trainmover.simulator.world import World

SPOILS_STANDBYS = {
    "circles",
    "crash",
    "socket",
    "stop",
    "freeze",
    "stuck",
    "flip",
    "controller",
    "torn",
    "unfit",
}
"""After these a machine may be cold for a minute, or for good."""


def lacks(world: World, since: Step, chance: Chance) -> str:
    """The first thing that there is not; "" if all is there. since: older ones do not count."""
    if world.host is None or world.job.finished:
        return ""
    job, count = world.job, chance.count
    for machine in job.machines.values():
        if machine.id not in {*job.seats, *job.cordoned} and not _is_ready(world, machine, count):
            return f"{machine.id} as a standby ({machine.state}: {machine.note})"
    return _kept(job, since, count)


def _is_ready(world: World, machine: Machine, count: dict[str, int]) -> bool:
    if any(w.circles for w in world.boxes[machine.id].workers):
        return True  # As ready as it can be: it is given up after long.
    if machine.state is MachineState.COLD:
        if machine.id in world.knobs.others:
            return True
        knobs = world.knobs
        return bool(knobs.unfit or knobs.corrupts or knobs.lacks or SPOILS_STANDBYS & count.keys())
    if world.spec.readiness != "held":
        return machine.state in (MachineState.IDLE, MachineState.WARM)
    return machine.state is MachineState.WARM and machine.held is not None


def _kept(job: Job, since: Step, count: dict[str, int]) -> str:
    spec, has_room = job.spec, "vault" not in count
    cut, checkpoint = job.cut, job.checkpoint
    if spec.snapshot_every and has_room and (cut is None or cut.step < since):
        return f"a cut after step {since}"
    often = spec.checkpoint and spec.checkpoint_every < 100 and has_room
    if often and (checkpoint is None or checkpoint.step < since):
        return f"a checkpoint after step {since}"
    if spec.fingerprint_every and job.comparison.step < since:
        return f"a round after step {since}"
    return ""
