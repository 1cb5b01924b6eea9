# SPDX-License-Identifier: Apache-2.0
"""Rung 1: survivors stay, a joiner takes the lost ranks, the interrupted step is run again. Pure.

    drain      new epoch to everybody (`interruption`); each rank says where it stood, each agent
               which records it holds; meanwhile the joiner runs the script in the sandbox as the
               lost ranks, or is waited for, if there is none and the job may wait
    boundary   the verdict is out; survivors apply or unwind and wait between two steps
    switch     the joiner takes state and record, all groups exchange the lost member

Where nobody holds what the joiner needs all go back instead (`going_back`): rungs 2 and 3.

Whatever fails meanwhile is the next event: epoch + 1 and the same code from the top. What a joiner
has already done is kept.
"""

from trainmover.controller.change.buddies import holding
from trainmover.controller.change.failing import fails_for_ever, note_failed
from trainmover.controller.change.going_back import go_back, newest, switch_back
from trainmover.controller.change.incidents import amend, incident, mark
from trainmover.controller.change.seats import holders, joining, parked, survivors, too_few
from trainmover.controller.change.switching import go_when_switched, send_switch
from trainmover.controller.change.verdict import Impossible, judge
from trainmover.controller.compare.replicas import replicas
from trainmover.controller.effects import Decision, Send, end
from trainmover.controller.standby.hedging import take_first_parked
from trainmover.controller.standby.joiners import joiners_after_loss
from trainmover.controller.state import Change, Job, Stage
from trainmover.controller.values import replace
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Verdict


def advance_recovery(job: Job, at_us: int) -> Decision:
    """Go on to the next stage if everything it needs has been said."""
    assert job.change is not None
    match job.change.stage:
        case Stage.DRAIN if job.change.missing:
            return _take_whom_there_is(job, at_us), ()
        case Stage.DRAIN:
            job, released = take_first_parked(job)
            job, effects = _give_verdict(job, at_us)
            return job, released + effects
        case Stage.BOUNDARY:
            job, released = take_first_parked(job)
            job, effects = _switch_when_ready(job, at_us)
            return job, released + effects
        case _:
            return go_when_switched(job, at_us)


def _take_whom_there_is(job: Job, at_us: int) -> Job:
    """No standby was left, and the job waits: a machine that has joined by now takes a slot. The
    wait is a phase of its own."""
    change = job.change
    assert change is not None
    more = joiners_after_loss(job, change.missing, change.joiners.values())
    if not more:
        return job
    joiners = {**change.joiners, **more}
    change = replace(change, joiners=joiners, missing=change.missing - set(more))
    job = amend(job, change.incident, joiner=next(iter(joiners.values())))
    if not change.missing:
        job = mark(job, change.incident, "wait", at_us)
    return replace(job, change=change)


def _give_verdict(job: Job, at_us: int) -> Decision:
    change = job.change
    assert change is not None
    if too_few(job, change, len(change.positions)) or not _records_known(job, change):
        return job, ()
    stay = survivors(job, change)
    if not set(stay) <= set(change.positions):
        return job, ()
    lost = joining(job, change)
    held = {
        rank: {
            step
            for name, vault in change.vaults.items()
            if name in job.machines
            for step in vault.get(rank, [])
        }
        for rank in lost
    }
    positions = {rank: change.positions[rank] for rank in stay}
    records = {rank: sorted(steps) for rank, steps in held.items()}
    job = amend(job, change.incident, positions=positions, held=records)
    verdict = judge(positions, lost, held, job.committed) if stay else _NOBODY_STAYS
    job = note_failed(job, newest(job) if isinstance(verdict, Impossible) else verdict)
    if why := fails_for_ever(job):
        return end(job, 1, why)
    if isinstance(verdict, Impossible):
        return go_back(job, verdict.why, at_us, afresh=True)
    if nobody := _without_replica(job, lost, stay) or change.lacking:
        return go_back(job, nobody, at_us)
    job = mark(job, change.incident, "drain", at_us)
    job = amend(job, change.incident, step=verdict)
    change = replace(change, stage=Stage.BOUNDARY, committed=verdict, since_us=at_us)
    job = replace(job, change=change, committed=verdict)
    order = Verdict(epoch=change.epoch, committed=verdict)
    orders = tuple(
        Send(machine, order)
        for slot, machine in enumerate(job.seats)
        if slot not in change.joiners and machine in job.machines
    )
    return job, orders


def _records_known(job: Job, change: Change) -> bool:
    """Tell whether every machine that may hold a record that counts has said what it holds.

    Those are the machines with ranks and their keepers: a rank puts its record with the keeper that
    it was told, and is told of another only behind a boundary, where no gate passes. A standby that
    keeps nothing is not waited for.
    """
    if len(change.vaults) + len(change.leavers) < len(job.seats):
        return False  # The usual case, met at every fact: fewer than the machines with ranks.
    return all(name in change.vaults for name in holding(job) if name in job.machines)


_NOBODY_STAYS = Impossible("no rank is left that could give its state")


def _without_replica(job: Job, lost: list[Rank], stay: list[Rank]) -> str:
    """Why some lost rank has no source of state; "" if all have one."""
    alone = [rank for rank in lost if not replicas(job, rank, stay)]
    if not alone:
        return ""
    if alone[0] in job.comparison.apart:
        return (
            f"ranks that held the state of rank {alone[0]} after step "
            f"{job.comparison.apart[alone[0]]} have parted since"
        )
    return f"no other rank holds the state of rank {alone[0]}"


def _switch_when_ready(job: Job, at_us: int) -> Decision:
    change = job.change
    assert change is not None
    if too_few(job, change, len(change.at_boundary)):
        return job, ()
    stay = survivors(job, change)
    if not set(stay) <= set(change.at_boundary):
        return job, ()
    marks = incident(job, change.incident).marks
    if marks.get("verdict", -1) < marks.get("drain", 0):
        job = mark(job, change.incident, "verdict", at_us)
    if not parked(job, change):
        return job, ()
    job = mark(job, change.incident, "bind", at_us)
    if change.back:
        return switch_back(job, at_us)
    if change.misled:
        return go_back(replace(job, misled=True), _misled(change), at_us, afresh=True)
    if why := _without_replica(job, joining(job, change), stay) or _record_lost(job, change):
        return go_back(job, why, at_us)
    return send_switch(job, {rank: replicas(job, rank, stay) for rank in joining(job, change)})


def _misled(change: Change) -> str:
    return f"what rank {min(change.misled)} has done between two steps cannot be done again"


def _record_lost(job: Job, change: Change) -> str:
    """Why the records that the verdict counted on are gone; "" if they are there."""
    assert change.committed is not None
    resume = Step(change.committed + 1)
    vaults = {machine.id: machine.vault for machine in job.machines.values()}
    for rank in joining(job, change):
        if not holders(change, rank, resume, vaults):
            return f"the record of rank {rank} for step {resume} is on no machine that lives"
    return ""
