# SPDX-License-Identifier: Apache-2.0
"""Reckon what it would cost to give machines up now. Pure.

A machine that nobody reaches may be back in a moment. To give it up is cheap where a warm standby
takes its ranks and other machines hold their state; it is dear where all ranks must go back; and it
ends the job where nobody holds what the machine held. So the price is compared with the time that
the job has waited already. An outage that has lasted so long is expected to last as long again, and
a job that gives up only then never loses more than twice what was best (Unicron, section 5, weighs
the same ways; the rule is that of ski rental). A job that would end waits as long as it may
(--patience).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainmover.controller.change.losses import (
    all_gone,
    cannot_go_on,
    lost_before_begin,
    processes_gone,
)
from trainmover.controller.change.options import AGAIN, BACK, STANDBY, WAIT, by_standby, measured
from trainmover.controller.change.seats import joining, survivors
from trainmover.controller.compare.replicas import replicas
from trainmover.controller.events import Lost
from trainmover.controller.keep.cuts import cut_at_hand, lost_of
from trainmover.controller.state import Cause, Change, Job, Phase, Stage, Trigger
from trainmover.ids import MachineId, Slot, Step

STANDBY_MS = 500.0
"""A switchover to a warm standby, before this job has measured one."""
START_MS = 20_000.0
"""Fresh processes on all machines, before this job has measured its start."""


@dataclass(frozen=True)
class Price:
    """Price of giving machines up. ms: infinite if the job would end, or wait for a machine.

    way  how the job would go on, as `options` names it; "" if it would end
    why  of what the price is made, or why the job would end
    """

    ms: float
    way: str
    why: str


def price_of(job: Job, lost: Sequence[Lost], *, newest: Step, step_ms: float) -> Price:
    """Return the price of giving up these machines now.

    newest   last step that is known to be committed
    step_ms  that a step takes
    """
    after = _without(job, lost)
    if after.phase is not job.phase and after.phase in (Phase.ENDED, Phase.ENDING):
        return _end("no machine can take the ranks")
    change = after.change
    newest = max(newest, job.committed)
    if after.restarts > job.restarts:
        redone = _start_ms(after) + newest * step_ms
        return Price(redone, AGAIN, "the first steps are not recorded yet")
    if change is None or change is job.change:
        return Price(0.0, STANDBY, "no ranks are lost")
    why = _not_held(job, after, change)
    price = _back(after, why, newest, step_ms) if why else None
    if change.missing and (price is None or price.way):
        return Price(math.inf, WAIT, "no machine is there yet that can take the ranks")
    if price is not None:
        return price
    known = measured(job, by_standby)
    return Price(STANDBY_MS if known is None else known, STANDBY, "state and records are held")


def can_be_given_up(job: Job, machine: MachineId) -> bool:
    """Tell whether the job would go on if this machine went now, maybe once another has come."""
    return bool(_way_without(job, machine))


def can_be_replaced(job: Job, machine: MachineId) -> bool:
    """Tell whether the job would go on without this machine, and wait for no other."""
    return _way_without(job, machine) not in ("", WAIT)


def _way_without(job: Job, machine: MachineId) -> str:
    """Return how the job would go on if this machine went now; "" if it would end."""
    lost = Lost(machine=machine, why="", heard_us=0)
    return price_of(job, [lost], newest=job.committed, step_ms=0.0).way


def _without(job: Job, lost: Sequence[Lost]) -> Job:
    """Return the job as it would be right after the loss, and the end of all processes that were
    told to end."""
    names = [one.machine for one in lost if one.machine in job.machines]
    if job.phase is Phase.GATHERING:
        return lost_before_begin(job, names, dict.fromkeys(names, ""), 0)[0]
    condemned = sorted((job.hanging.condemned.keys() & job.machines.keys()) - set(names))
    for name in condemned:
        job = processes_gone(job, name)
    places, cause = [*names, *condemned], Cause(Trigger.LOST, "")
    return cannot_go_on(all_gone(job, names, 0), places, cause, 0, 0, lost=lost)[0]


def _end(why: str) -> Price:
    return Price(math.inf, "", why)


def _not_held(job: Job, after: Job, change: Change) -> str:
    """Why a lost rank cannot be taken over where the job stands; "" if all can."""
    stay = survivors(after, change)
    missing = [rank for slot in sorted(change.missing) for rank in job.spec.ranks(slot)]
    for rank in [*joining(after, change), *missing]:
        if not replicas(after, rank, stay):
            return f"no other machine holds the state of rank {rank}"
        if not _is_kept(job, after, Slot(rank // job.spec.nproc)):
            return f"the record of rank {rank} would be lost as well"
    return ""


def _is_kept(job: Job, after: Job, slot: Slot) -> bool:
    """Tell whether the machine that keeps the records of the slot's ranks is still there. Ranks
    that have not switched yet may have theirs with a keeper that they had before."""
    change, told = job.change, after.keepers.get(slot, ())[:1]
    if change is not None and change.stage is Stage.SWITCH:
        heard = set(job.spec.ranks(slot)) <= change.switched
        told = told if heard else job.keepers_before.get(slot, ())
    return bool(told) and all(name in after.machines for name in told)


def _back(after: Job, why: str, newest: Step, step_ms: float) -> Price:
    """Return the price of all ranks going back to the newest state that is left of all of them."""
    cut, checkpoint = cut_at_hand(after), after.checkpoint
    if cut is not None:
        switch = measured(after, lambda one: one.rung == 2) or STANDBY_MS
        redone = max(0, newest - cut.step)
        return Price(switch + redone * step_ms, BACK, f"{why}; {redone} steps would be made again")
    if checkpoint is None or after.restarts >= after.spec.restarts_max:
        return _end(f"{why}, and {_no_snapshot(after)}")
    redone = max(0, newest - checkpoint.step)
    text = f"{why}; all would start again from the checkpoint of step {checkpoint.step}"
    return Price(_start_ms(after) + redone * step_ms, AGAIN, text)


def _start_ms(job: Job) -> float:
    return START_MS if job.start_ms is None else job.start_ms


def _no_snapshot(after: Job) -> str:
    rank = lost_of(after)
    return "no snapshot is at hand" if rank is None else f"so would be the snapshot of rank {rank}"
