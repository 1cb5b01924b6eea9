# SPDX-License-Identifier: Apache-2.0
"""Scripts end: all of them, which ends the job well, or one in another way than the rest. Pure."""

from trainmover.controller.change.incidents import amend, count_rank, open_incident
from trainmover.controller.change.losses import process_gone
from trainmover.controller.change.move import cancel_move
from trainmover.controller.change.seats import before_switch, goes_back
from trainmover.controller.effects import Decision, Effect, Send, end
from trainmover.controller.state import (
    Cause,
    Job,
    Kind,
    MachineState,
    Outcome,
    Phase,
    Stage,
    Trigger,
)
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Rank, Slot
from trainmover.protocol.messages import Ending, Exit, Finished, Raised, WentOn


def finished(job: Job, machine: MachineId, local_rank: int, fact: Finished, at_us: int) -> Decision:
    """A script has ended as it should, or with an exit status, which becomes the job's."""
    if job.rank_of(machine, local_rank) != fact.rank or goes_back(job.change):
        return job, ()  # Of a run that does not count any more.
    if fact.code:
        text = (
            f"The script ended with exit status {fact.code} on rank {fact.rank}.\n"
            "The job has ended with that status.\n"
            "What the script printed above says why."
        )
        return end(job, fact.code, text)
    first = not job.finished
    job = replace(job, finished=job.finished.having(fact.rank, (fact.step, fact.digest)))
    job = count_rank(replace(job, committed=max(job.committed, fact.step)), fact.rank, at_us)
    effects: tuple[Effect, ...] = ()
    if before_switch(job.change):
        job, effects = cancel_move(job, "the script ended first")
    if len(job.finished) == job.spec.world_size:
        current = open_incident(job)
        if current is not None:
            job = amend(job, current.number, outcome=Outcome.DONE, note="the script ended first")
        job = replace(job, phase=Phase.ENDING, change=None)
        return job, (*effects, *(Send(name, Exit()) for name in job.seats if name in job.machines))
    if first and fact.attached:
        order = Ending(rank=fact.rank, step=fact.step)
        effects += tuple(Send(name, order) for name in job.seats if name in job.machines)
    return job, effects


def end_when_all_left(job: Job) -> Decision:
    """Processes leave by themselves, so that atexit handlers of the script run to their end."""
    waiting = [
        rank
        for slot, machine in enumerate(job.seats)
        if machine in job.machines
        for rank in job.spec.ranks(Slot(slot))
        if rank not in job.exited
    ]
    return (job, ()) if waiting else end(job, 0, _unprotected(job))


def _unprotected(job: Job) -> str:
    """What to tell a user whose script ran to its end without protection; "" if it had it."""
    if not job.attached:
        return (
            "The script never called trainmover.attach().\n"
            "It ran as under torchrun: a lost machine would have started it again from nothing.\n"
            "Call attach(), track() and step as in examples/gpt.py."
        )
    if job.committed == 0:
        return (
            "The script attached but ran no function marked @job.step.\n"
            "Nothing of it was protected: a lost machine would have started it again.\n"
            "Mark the function that makes one optimizer step with @job.step."
        )
    return ""


def raised(job: Job, machine: MachineId, fact: Raised, at_us: int) -> Decision:
    """A bug in the script is no loss of a machine; but what is left of collectives that were cut
    short makes healthy scripts raise. Then the rank is taken up again where it was last whole: if
    it is a bug, it raises there again."""
    if fact.misled or _is_left(job, machine, fact.rank):
        text = (
            f"rank {fact.rank} on {machine} raised {fact.error} in step {fact.step}, "
            "of values that a collective had left when it was cut short"
        )
        return process_gone(job, machine, Cause(Trigger.RAISED, text), at_us, at_us)
    return end(
        job,
        1,
        f"Rank {fact.rank} raised {fact.error}.\n"
        "The job has ended: what a script raises is not recovered from.\n"
        f"Mend the script and start it again.\n{fact.traceback}",
    )


def _is_left(job: Job, machine: MachineId, rank: Rank) -> bool:
    """Whether the rank was still in an epoch that is being left: its groups drain there."""
    change = job.change
    if change is None or change.kind is not Kind.RECOVERY:
        return False
    drains = change.stage in (Stage.DRAIN, Stage.BOUNDARY) and rank not in change.at_boundary
    return drains and job.machines[machine].state is MachineState.ACTIVE


def went_on(job: Job, fact: WentOn) -> Decision:
    """A rank is in a step that another rank's script ended before."""
    if not job.finished:
        return job, ()  # They go back, and will end again.
    ended = min(job.finished, key=lambda r: job.finished[r][0])
    after = job.finished[ended][0]
    text = (
        f"The script of rank {ended} ended after step {after}, "
        f"but rank {fact.rank} went on to step {fact.step}.\n"
        "The job has ended: a step needs every rank.\n"
        "All ranks must run the same number of steps; look at how rank "
        f"{ended} left its loop."
    )
    return end(job, 1, text)
