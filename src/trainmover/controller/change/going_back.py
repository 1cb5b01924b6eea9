# SPDX-License-Identifier: Apache-2.0
"""Rung 2: all ranks run the script again from the newest cut, because nobody holds what a lost one
held, or what it was about to tell. Pure.

    boundary   survivors unwind and run the script again in their warm processes; every rank is a
               joiner, and parks
    switch     each takes its own snapshot of the cut, all connect their groups anew

Rung 3, where there is no cut at hand: the same in fresh processes, from a checkpoint (`from_disk`).
"""

from typing import Any

from trainmover.controller.change.from_disk import as_cut, go_back_to_disk
from trainmover.controller.change.incidents import amend, incident, mark
from trainmover.controller.change.seats import with_machine
from trainmover.controller.change.switching import begin_back, send_switch_back
from trainmover.controller.effects import Decision, Effect, Send, end
from trainmover.controller.keep.cuts import cut_at_hand, lost_of, only_in_processes
from trainmover.controller.keep.last_checkpoint import nobody_left
from trainmover.controller.standby.hedging import without_hedges
from trainmover.controller.standby.joiners import everybody
from trainmover.controller.start import start_again, start_workers
from trainmover.controller.state import Change, Job, MachineState
from trainmover.controller.values import replace
from trainmover.ids import Step
from trainmover.protocol.messages import GiveSnapshots, Leave

FRESH_STEPS_MAX = 100
"""So many steps are made again from the beginning rather than the job ends."""


def go_back(job: Job, why: str, at_us: int, *, afresh: bool = False) -> Decision:
    """All ranks run the script again from the newest cut: survivors where they are, and so do
    joiners whose script may have gone beyond it.

    The epoch is a new one: what they are told to leave is older than what they are bound for.
    afresh: a job that has made few steps starts from the beginning if it cannot go back
    """
    job, released = without_hedges(job)
    change = job.change
    assert change is not None
    cut = cut_at_hand(job)
    if cut is None:
        job, effects = _without_a_cut(job, why, at_us, afresh=afresh)
        return job, released + effects
    joiners = everybody(job, change)
    if joiners is None:
        return nobody_left(job, incident(job, change.incident).cause, 1, at_us)
    given = _given_to_vaults(job, change, cut.step)
    job, orders = _unwind(job, change)
    job = amend(mark(job, change.incident, "drain", at_us), change.incident, **_as_rung_2(job, why))
    job = begin_back(job, joiners, committed=cut.step, since_us=at_us)
    job = replace(job, committed=cut.step)
    return amend(job, change.incident, step=cut.step), released + given + orders


def _given_to_vaults(job: Job, change: Change, step: Step) -> tuple[Effect, ...]:
    """A process that turns out to be good for one run only takes its snapshot with it: where that
    is the only one, as the buddy is what was lost, the machine's own vault gets it first."""
    return tuple(
        Send(name, GiveSnapshots(change.epoch, step, dict.fromkeys(ranks, machine.vault)))
        for name, machine in sorted(job.machines.items())
        if (ranks := only_in_processes(job, name))
    )


def _unwind(job: Job, change: Change) -> Decision:
    """Those who train leave their run, and so do joiners who may be beyond the cut. Where processes
    have ended already, after the script, fresh ones are started."""
    ended = {job.seats[rank // job.spec.nproc] for rank in job.exited}
    orders: tuple[Effect, ...] = ()
    for name, machine in sorted(job.machines.items()):
        trains = machine.state is MachineState.ACTIVE
        beyond = machine.state is MachineState.BOUND and name in change.on_way
        if trains and name in ended:
            job, more = start_workers(job, name)
            orders += more
        elif trains or beyond:
            orders += (Send(name, Leave(epoch=change.epoch)),)
            job = with_machine(job, name, state=MachineState.LEAVING, said=frozenset())
    return job, orders


def _as_rung_2(job: Job, why: str) -> dict[str, Any]:
    """What the incident says of it; its steps count from where the job had been at first."""
    assert job.change is not None
    assert job.cut is not None
    redone = newest(job) - job.cut.step
    redone = max(redone, incident(job, job.change.incident).redone)
    return {"rung": 2, "why_rung": why, "redone": redone}


def newest(job: Job) -> Step:
    """Return the last step that somebody has committed, as far as ranks or their records tell."""
    assert job.change is not None
    said = [position.committed for position in job.change.positions.values()]
    held = incident(job, job.change.incident).held.values()
    return Step(max([job.committed, *said, *(max(steps) - 1 for steps in held if steps)]))


def _without_a_cut(job: Job, why: str, at_us: int, *, afresh: bool = False) -> Decision:
    change = job.change
    assert change is not None
    if job.checkpoint is not None:
        return go_back_to_disk(mark(job, change.incident, "drain", at_us), why)
    joiners = everybody(job, change)
    if not afresh or joiners is None or newest(job) > FRESH_STEPS_MAX:
        return end(job, 1, _cannot_go_back(job, why))
    because = f"{why}, and {why_no_cut(job)}"
    job = mark(job, change.incident, "drain", at_us)
    return start_again(job, joiners, change.incident, because, redone=newest(job))


def _cannot_go_back(job: Job, why: str) -> str:
    assert job.change is not None
    cause = incident(job, job.change.incident).cause
    return (
        f"{cause}, and {why}.\n"
        f"The job has ended after step {newest(job)}: {why_no_cut(job)}.\n"
        "Start it again from your newest checkpoint; with --checkpoint the job takes one by "
        "itself, and with --snapshots it keeps the state of all ranks in memory from the start."
    )


def why_no_cut(job: Job) -> str:
    if job.no_snapshots:
        return f"snapshots were given up ({job.no_snapshots})"
    if (rank := lost_of(job)) is not None:
        return f"the snapshot of rank {rank} was lost as well"
    if job.spec.snapshot_every == 0:
        return "snapshots were turned off (--snapshots)"
    return "there was no snapshot of all ranks yet"


def switch_back(job: Job, at_us: int) -> Decision:
    """Everybody is parked. The cut's places may have changed since: an older one is not taken."""
    assert job.change is not None
    if job.change.disk:
        checkpoint = job.change.checkpoint
        return send_switch_back(job, as_cut(checkpoint)) if checkpoint else (job, ())
    cut = cut_at_hand(job)
    if cut is None:
        return _without_a_cut(job, incident(job, job.change.incident).why_rung, at_us)
    return send_switch_back(job, cut)
