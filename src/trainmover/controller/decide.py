"""What a job does next: `decide(job, event) -> (job, effects)`. Pure; replay relies on it.

Three laws. An event is in the journal before its effects leave. Every order about membership
carries an epoch, and an older one is ignored, so late and doubled facts are harmless here too: a
fact about another epoch than the one under way changes nothing. Time comes in with the events.

A fact is first taken into the job, then the change under way is advanced as far as the facts allow.
This file is the table of contents; `start`, `recovery` and `move` hold the stories.
"""

from dataclasses import replace
from typing import assert_never

from trainmover.controller.effects import Answer, Effect, Fence, Send
from trainmover.controller.events import (
    EVENTS,
    AgentSaid,
    KillRequested,
    MachineJoined,
    MachineLost,
    MoveRequested,
    StopRequested,
    WorkerSaid,
)
from trainmover.controller.incidents import (
    amend,
    count_rank,
    first_commit,
    incident,
    mark,
    open_incident,
)
from trainmover.controller.move import (
    advance_move,
    before_switch,
    cancel_move,
    request_move,
    unknown_machine,
)
from trainmover.controller.recovery import advance_recovery, bind_ready, interrupt
from trainmover.controller.seats import seats_after, with_machine, without_machine
from trainmover.controller.start import (
    Decision,
    end,
    gather,
    lost_early,
    start_workers,
    tend_standbys,
)
from trainmover.controller.state import (
    Change,
    Job,
    Kind,
    Machine,
    MachineState,
    Outcome,
    Phase,
    Stage,
)
from trainmover.ids import MachineId, Rank, Slot
from trainmover.protocol.messages import (
    AtBoundary,
    Attached,
    Committed,
    Die,
    Ending,
    Exit,
    Finished,
    Interrupted,
    Left,
    Loaded,
    Parked,
    Position,
    Prepared,
    Raised,
    Recorded,
    SandboxFailed,
    Switched,
    VaultHeld,
    Warm,
    Warned,
    WentOn,
    WorkerExited,
    WorkerUp,
)


def decide(job: Job, event: EVENTS) -> Decision:
    """Apply one event. Equal inputs give equal outputs."""
    if job.phase is Phase.ENDED:
        return _after_the_end(job, event)
    match event:
        case MachineJoined():
            job, effects = _machine_joined(job, event)
        case MachineLost():
            job, effects = _machine_lost(job, event)
        case WorkerSaid():
            job, effects = _worker_said(job, event)
        case AgentSaid():
            job, effects = _agent_said(job, event)
        case MoveRequested():
            job, effects = request_move(job, event)
        case KillRequested():
            job, effects = _kill(job, event)
        case StopRequested():
            job, effects = end(job, event.code, event.why)
        case _:
            assert_never(event)
    job, more = _settle(job, event.at_us)
    return job, effects + more


def _after_the_end(job: Job, event: EVENTS) -> Decision:
    match event:
        case MoveRequested() | KillRequested():
            text = "The job has ended: nothing was done."
            return job, (Answer(event.request, ok=False, text=text),)
        case MachineLost():
            return without_machine(job, event.machine) if event.machine in job.machines else job, ()
        case _:
            return job, ()


def _settle(job: Job, at_us: int) -> Decision:
    """Advance whatever waits for facts, until nothing moves any more."""
    effects: tuple[Effect, ...] = ()
    while job.phase is not Phase.ENDED:
        before = job
        job, more = _advance(job, at_us)
        effects += more
        if job == before:
            break
    return job, effects


def _advance(job: Job, at_us: int) -> Decision:
    if job.phase in (Phase.GATHERING, Phase.STARTING):
        return gather(job)
    if job.phase is Phase.ENDING:
        job, answers = _answer_done_moves(job)
        job, more = _end_when_all_left(job)
        return job, answers + more
    change = job.change
    if change is None:
        job, answers = _answer_done_moves(job)
        job, more = tend_standbys(job)
        return job, answers + more
    if change.kind is Kind.MOVE:
        job, bound = bind_ready(job) if change.stage is Stage.BIND else (job, ())
        job, more = advance_move(job, at_us)
    else:
        job, bound = bind_ready(job) if change.stage is not Stage.SWITCH else (job, ())
        job, more = advance_recovery(job, at_us)
    return job, bound + more


def _answer_done_moves(job: Job) -> Decision:
    """Whoever asked for a move learns of it when the first step after it is committed."""
    last = job.incidents[-1] if job.incidents else None
    if last is None or last.outcome is not Outcome.DONE or not last.request:
        return job, ()
    ranks = f"rank{'s' * (len(last.ranks) > 1)} " + ", ".join(map(str, last.ranks))
    pause = "" if last.downtime_ms is None else f": pause {last.downtime_ms:.0f} ms"
    text = f"{last.machine} -> {last.joiner} after step {last.step}{pause}; {ranks} kept."
    answer = Answer(last.request, ok=True, text=text, incident=last.number)
    return amend(job, last.number, request=""), (answer,)


# --- machines -------------------------------------------------------------------------------------


def _machine_joined(job: Job, event: MachineJoined) -> Decision:
    machine = Machine(id=event.machine, standby=event.standby, vault=event.vault, host=event.host)
    job = replace(job, machines={**job.machines, event.machine: machine})
    if job.change is not None:  # It was not asked what records it holds, and it holds none.
        vaults = {**job.change.vaults, event.machine: {}}
        job = replace(job, change=replace(job.change, vaults=vaults))
    return start_workers(job, event.machine)


def _machine_lost(job: Job, event: MachineLost) -> Decision:
    if event.machine not in job.machines:
        return job, ()
    killed_us = job.machines[event.machine].killed_us
    job = without_machine(job, event.machine)
    cause = f"{event.machine} was lost: {event.why}"
    if job.phase is Phase.GATHERING:
        job, effects = lost_early(job, event.machine, event.why)
    else:
        heard_us = killed_us if killed_us is not None else event.heard_us
        job, effects = _lost(job, event.machine, cause, event.at_us, heard_us)
    return job, (Fence(event.machine), *effects)


def _lost(job: Job, machine: MachineId, cause: str, at_us: int, heard_us: int) -> Decision:
    """A machine, or the workers on it, cannot go on in the place they had."""
    slot = job.slot_of(machine)
    joins = job.change is not None and machine in job.change.joiners.values()
    if slot is not None and (slot in job.vacant() or job.phase is Phase.STARTING):
        job, answer = _answer_overtaken(job, cause)
        job, effects = interrupt(job, cause, machine=machine, at_us=at_us, heard_us=heard_us)
        return job, answer + effects
    if joins and before_switch(job.change):
        return cancel_move(job, f"the joiner failed ({cause})")
    if joins:
        job, answer = _answer_overtaken(job, cause)
        job, effects = interrupt(job, cause, machine=machine, at_us=at_us, heard_us=heard_us)
        return job, answer + effects
    return job, ()


def _answer_overtaken(job: Job, cause: str) -> Decision:
    """A move that a loss has overtaken before its first commit is answered.

    The recovery takes over its joiner.
    """
    current = open_incident(job)
    if current is None or not current.request:
        return job, ()
    text = f"The move was overtaken: {cause}.\nThe job recovers and trains on."
    answer = Answer(current.request, ok=False, text=text, incident=current.number)
    return amend(job, current.number, request=""), (answer,)


def _kill(job: Job, event: KillRequested) -> Decision:
    machine = MachineId(event.machine)
    if machine not in job.machines:
        return job, (Answer(event.request, ok=False, text=unknown_machine(job, machine)),)
    job = with_machine(job, machine, killed_us=event.at_us)
    return job, (
        Send(machine, Die()),
        Answer(event.request, ok=True, text=f"{machine} was told to die."),
    )


# --- facts from agents ----------------------------------------------------------------------------


def _agent_said(job: Job, event: AgentSaid) -> Decision:
    if event.machine not in job.machines:
        return job, ()
    match event.fact:
        case WorkerExited():
            return _worker_exited(job, event.machine, event.fact, event.at_us)
        case VaultHeld(epoch=epoch, records=records):
            change = job.change
            if change is None or change.epoch != epoch:
                return job, ()
            vaults = {**change.vaults, event.machine: records}
            return replace(job, change=replace(change, vaults=vaults)), ()
        case _:
            assert_never(event.fact)


def _worker_exited(job: Job, machine: MachineId, fact: WorkerExited, at_us: int) -> Decision:
    """A process ended that had not said it would."""
    rank = job.rank_of(machine, fact.local_rank)
    if fact.pid in job.machines[machine].gone:
        return job, ()
    if rank is not None and rank in job.finished:
        return replace(job, exited=job.exited | {rank}), ()
    if job.machines[machine].state is MachineState.DOWN:
        return job, ()
    cause = f"worker {fact.local_rank} of {machine} ended ({_ending(fact.code)})"
    if job.phase is Phase.GATHERING or (job.phase is Phase.STARTING and rank is not None):
        text = f"{cause} before the script began.\nThe job has ended.\nIts output above says why."
        return end(job, 1, text)
    crashes = job.machines[machine].crashes + 1
    job = with_machine(
        job, machine, state=MachineState.DOWN, workers={}, said=frozenset(), crashes=crashes
    )
    return _lost(job, machine, cause, at_us, at_us)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"


# --- facts from workers ---------------------------------------------------------------------------


def _worker_said(job: Job, event: WorkerSaid) -> Decision:
    if event.machine not in job.machines:
        return job, ()
    machine, fact = event.machine, event.fact
    if isinstance(fact, WorkerUp):
        return _worker_up(job, machine, event.local_rank, fact), ()
    if event.local_rank not in job.machines[machine].workers:
        return job, ()  # Of a process that is being replaced.
    match fact:
        case Attached(rank=rank):
            return replace(job, attached=job.attached | {rank}), ()
        case Recorded(rank=rank):
            if job.rank_of(machine, event.local_rank) != rank:
                return job, ()
            return replace(job, recorded={**job.recorded, rank: fact}), ()
        case Warm(rank=rank, trace=trace) if _differs(job, rank, trace):
            return _sandbox_failed(job, machine, _OTHER_TRACE.format(rank=rank))
        case Warm():
            return _said(
                job, machine, event.local_rank, MachineState.WARMING, MachineState.WARM
            ), ()
        case Parked(rank=rank, trace=trace):
            return _parked(job, machine, event.local_rank, rank, trace)
        case SandboxFailed(reason=reason):
            return _sandbox_failed(job, machine, reason)
        case Left():
            return _said(
                job, machine, event.local_rank, MachineState.LEAVING, MachineState.IDLE
            ), ()
        case Committed():
            return _committed(job, fact, event.at_us)
        case Finished():
            return _finished(job, machine, event.local_rank, fact, event.at_us)
        case WentOn() | Raised() if job.rank_of(machine, event.local_rank) != fact.rank:
            return job, ()  # A leaver that is being unwound: its ranks live elsewhere.
        case WentOn(rank=rank, step=step):
            return end(job, 1, _ended_early(job, rank, step))
        case Raised():
            return end(
                job,
                1,
                f"Rank {fact.rank} raised {fact.error}.\n"
                "The job has ended: what a script raises is not recovered from.\n"
                f"Mend the script and start it again.\n{fact.traceback}",
            )
        case Interrupted():
            return _interrupted(job, machine, fact, event.at_us)
        case Warned():
            return job, ()
        case Prepared() | Position() | AtBoundary() | Loaded() | Switched():
            return _about_change(job, machine, fact, event.at_us)
        case _:
            assert_never(fact)


def _worker_up(job: Job, machine: MachineId, local_rank: int, fact: WorkerUp) -> Job:
    current = job.machines[machine]
    workers = {**current.workers, local_rank: fact.address}
    pids = {**current.pids, local_rank: fact.pid}
    up = len(workers) == job.spec.nproc and current.state is MachineState.STARTING
    state = MachineState.IDLE if up else current.state
    return with_machine(job, machine, workers=workers, pids=pids, state=state)


def _said(
    job: Job, machine: MachineId, local_rank: int, now: MachineState, then: MachineState
) -> Job:
    """Count a worker's fact; when all have said it, the machine's state turns."""
    current = job.machines[machine]
    if current.state is not now:
        return job
    said = current.said | {local_rank}
    if len(said) < job.spec.nproc:
        return with_machine(job, machine, said=said)
    return with_machine(job, machine, said=frozenset(), state=then)


def _parked(job: Job, machine: MachineId, local_rank: int, rank: Rank, trace: str) -> Decision:
    """A joiner may go on only if one step of its shadow run has the job's steady trace."""
    current = job.machines[machine]
    if current.state is not MachineState.BOUND:
        return job, ()
    if _differs(job, rank, trace):
        return _sandbox_failed(job, machine, _OTHER_TRACE.format(rank=rank))
    return with_machine(job, machine, said=current.said | {local_rank}), ()


_OTHER_TRACE = "as rank {rank} its shadow step made other collectives than the recorded one"


def _differs(job: Job, rank: Rank, trace: str) -> bool:
    return rank in job.recorded and job.recorded[rank].trace != trace


def _sandbox_failed(job: Job, machine: MachineId, reason: str) -> Decision:
    """The machine is no standby for this script; whatever counted on it looks for another."""
    joins = job.change is not None and machine in job.change.joiners.values()
    job = with_machine(job, machine, state=MachineState.COLD, said=frozenset(), note=reason)
    if not joins:
        return job, ()
    cause = f"{machine} cannot take the ranks: {reason}"
    if before_switch(job.change):
        return cancel_move(job, cause)
    assert job.change is not None
    current = incident(job, job.change.incident)
    at_us = max(current.marks.values())
    heard_us = current.marks.get("heard", at_us)
    job, answer = _answer_overtaken(job, cause)
    job, effects = interrupt(job, cause, machine=current.machine, at_us=at_us, heard_us=heard_us)
    return job, answer + effects


def _committed(job: Job, fact: Committed, at_us: int) -> Decision:
    """Only the first commit of an epoch comes here. It closes an incident, and answers a move."""
    step = max(job.committed, *(row.step for row in fact.rows)) if fact.rows else job.committed
    job = first_commit(replace(job, committed=step, retries=0), fact, at_us)
    return job, ()


def _finished(
    job: Job, machine: MachineId, local_rank: int, fact: Finished, at_us: int
) -> Decision:
    if job.rank_of(machine, local_rank) != fact.rank:
        return job, ()
    if fact.code:
        text = (
            f"The script ended with exit status {fact.code} on rank {fact.rank}.\n"
            "The job has ended with that status.\n"
            "What the script printed above says why."
        )
        return end(job, fact.code, text)
    first = not job.finished
    job = replace(job, finished={**job.finished, fact.rank: (fact.step, fact.digest)})
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


def _end_when_all_left(job: Job) -> Decision:
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


def _ended_early(job: Job, rank: Rank, step: int) -> str:
    ended = min(job.finished, key=lambda r: job.finished[r][0], default=None)
    after = job.finished[ended][0] if ended is not None else 0
    return (
        f"The script of rank {ended} ended after step {after}, "
        f"but rank {rank} went on to step {step}.\n"
        "The job has ended: a step needs every rank.\n"
        "All ranks must run the same number of steps; look at how rank "
        f"{ended} left its loop."
    )


def _interrupted(job: Job, machine: MachineId, fact: Interrupted, at_us: int) -> Decision:
    """A link broke. A lost machine behind it will show; all ranks must leave the epoch now."""
    change = job.change
    switching = change is not None and change.stage is Stage.SWITCH
    current = change.epoch if change is not None and switching else job.epoch
    draining = change is not None and change.kind is Kind.RECOVERY and not switching
    if fact.epoch != current or draining or job.phase is not Phase.RUNNING:
        return job, ()
    cause = f"rank {fact.rank} lost a link ({fact.reason})"
    job, answer = _answer_overtaken(job, cause)
    job, effects = interrupt(job, cause, machine=None, at_us=at_us, heard_us=at_us)
    return job, answer + effects


def _about_change(
    job: Job,
    machine: MachineId,
    fact: Prepared | Position | AtBoundary | Loaded | Switched,
    at_us: int,
) -> Decision:
    """Take a fact about the change under way; one about another epoch is late: ignore it."""
    change = job.change
    if change is None or fact.epoch != change.epoch or not _speaks_for(job, change, machine, fact):
        return job, ()
    rank = fact.rank
    match fact:
        case Prepared(reason=reason) if reason:
            return cancel_move(job, f"phase 1 failed on rank {rank} ({reason})", failed=True)
        case Prepared():
            change = replace(change, prepared=change.prepared | {rank})
        case Position():
            change = replace(change, positions={**change.positions, rank: fact})
        case AtBoundary(committed=step):
            change = replace(change, at_boundary={**change.at_boundary, rank: step})
        case Switched():
            change = replace(change, switched=change.switched | {rank})
        case Loaded(certificate=certificate):
            change = replace(change, loaded=change.loaded | {rank})
            certificates = (*incident(job, change.incident).certificates, certificate)
            job = amend(job, change.incident, certificates=certificates)
            if not certificate.equal:
                return end(job, 1, _wrong_state(certificate.rank))
            if len(change.loaded) == len(change.joiners) * job.spec.nproc:
                job = mark(job, change.incident, "state", at_us)
    return replace(job, change=change), ()


def _wrong_state(rank: Rank) -> str:
    return (
        f"Rank {rank} did not receive the state its source sent: the digests differ.\n"
        "The job has ended: going on could train on wrong data.\n"
        "Start it again from your newest checkpoint, and look at that machine's memory."
    )


def _speaks_for(
    job: Job,
    change: Change,
    machine: MachineId,
    fact: Prepared | Position | AtBoundary | Loaded | Switched,
) -> bool:
    """Whether `machine` is the one whose word counts for this rank at this point."""
    slot = fact.rank // job.spec.nproc
    if slot >= len(job.seats):
        return False
    if isinstance(fact, Position | AtBoundary):
        return job.seats[slot] == machine
    return seats_after(job, change)[slot] == machine
