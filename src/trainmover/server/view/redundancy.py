# SPDX-License-Identifier: Apache-2.0
"""Redundancy of a job: standbys wanted and ready, what the loss of a machine would mean. Pure."""

from typing import Any

from trainmover.controller.change.seats import without_machines
from trainmover.controller.compare.roles import representatives
from trainmover.controller.policies.plans.standbys import coming, ready
from trainmover.controller.standby.attest import predicted_ms
from trainmover.controller.standby.joiners import joiners_after_loss
from trainmover.controller.state import Job, MachineState, Phase
from trainmover.ids import MachineId, Slot
from trainmover.server.ranks import ranks_named

ADD = "trainmover add starts one here"


def redundancy_json(job: Job) -> dict[str, Any]:
    """Return standbys wanted, ready and on their way, with a sentence. alarm: none is ready."""
    count, more = len(ready(job)), len(coming(job))
    alarm = not count and job.phase is Phase.RUNNING and not waits(job)
    text = f"standbys {count} of {job.spec.standbys} ready"
    if more:
        text += f", {more} on the way"
    elif alarm:
        text += f": {_next_loss(job)} ({ADD})"
    return {
        "wanted": job.spec.standbys,
        "ready": count,
        "coming": more,
        "alarm": alarm,
        "text": text,
    }


def waits(job: Job) -> bool:
    """Tell whether no machine is left for a lost one, and the job waits for one."""
    return job.change is not None and bool(job.change.missing)


def _next_loss(job: Job) -> str:
    if job.spec.wait_s:
        return f"after the next loss the job waits up to {job.spec.wait_s} s for a machine"
    return "the next loss ends the job"


def loss_json(job: Job, machine: MachineId) -> dict[str, Any]:
    """Return what the loss of this machine would mean. joiners: machine for each slot; downtime_ms:
    None if it is not known; ends: it would end the job."""
    slots = [Slot(slot) for slot, name in enumerate(job.seats) if name == machine]
    without = without_machines(job, [machine])
    vacant = without.vacant() if slots else []
    joiners = joiners_after_loss(without, vacant, ())
    lacking = len(joiners) < len(vacant)
    ends = lacking and not job.spec.wait_s
    known = {slot: _downtime_ms(job, joiners[slot], slot) for slot in slots if slot in joiners}
    downtime_ms = None if None in known.values() else max(known.values(), default=None)  # type: ignore[type-var]
    if not vacant:
        text = f"{machine} has no ranks that are still needed."
    elif ends:
        text = "No standby: this ends the job."
    elif lacking:
        text = f"No standby: the job waits up to {job.spec.wait_s} s for a machine, then ends."
    else:
        text = _takes_over(job, slots, joiners, downtime_ms)
    return {
        "machine": machine,
        "joiners": {str(slot): name for slot, name in joiners.items()},
        "downtime_ms": downtime_ms,
        "ends": ends,
        "text": text,
    }


def _downtime_ms(job: Job, joiner: MachineId, slot: Slot) -> float | None:
    first = representatives(job).get(slot)
    return None if first is None else predicted_ms(job, job.machines[joiner], first)


def _takes_over(
    job: Job, slots: list[Slot], joiners: dict[Slot, MachineId], downtime_ms: float | None
) -> str:
    parts = []
    for slot in (slot for slot in slots if slot in joiners):
        name = joiners[slot]
        up = job.machines[name].state is MachineState.WARM
        late = "" if up else ", which is not ready yet,"
        parts.append(f"{name}{late} takes {ranks_named(job.spec.ranks(slot))}")
    soon = "" if downtime_ms is None else f" in about {downtime_ms:.0f} ms"
    return f"{', '.join(parts)}{soon}."
