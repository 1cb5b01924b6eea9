# SPDX-License-Identifier: Apache-2.0
"""What a job does next: `decide(job, event) -> (job, effects)`. Pure; replay relies on it.

Three laws. An event is in the journal before its effects leave. Every order about membership
carries an epoch, and an older one is ignored, so late and doubled facts are harmless here too: a
fact about another epoch than the one under way changes nothing. Time comes in with the events.

A fact is first taken into the job, then the job is settled: joiners are bound, and the change under
way is advanced as far as the facts allow. So who takes a fact only says what is to be (who joins,
what is to be written), and needs nobody who does it. This file is the table of contents; `start`,
`interruption`, `recovery`, `move`, `warming` and `ending` hold the stories.
"""

from functools import partial
from typing import assert_never

from trainmover.controller.change.from_disk import found
from trainmover.controller.change.incidents import steps_unequal
from trainmover.controller.change.move import advance_move, answer_done_moves, request_move
from trainmover.controller.change.past import let_go
from trainmover.controller.change.recovery import advance_recovery
from trainmover.controller.change.reports import (
    about_change,
    committed,
    interrupted,
    unproven,
    vault_held,
)
from trainmover.controller.change.seats import without_machines
from trainmover.controller.clock import tick
from trainmover.controller.compare.replacing import compared, replace_diverged
from trainmover.controller.effects import Answer, Decision, Effect, Fence
from trainmover.controller.ending import end_when_all_left, finished, raised, went_on
from trainmover.controller.events import (
    EVENTS,
    REQUESTS,
    AgentSaid,
    AnomalyFound,
    CheckpointFailed,
    CheckpointFound,
    CheckpointPublished,
    ContactChanged,
    ControllerReturned,
    CordonRequested,
    DrainRequested,
    EngineNoticed,
    HealthRequested,
    KillRequested,
    MachineJoined,
    MachinesDenied,
    MachinesGranted,
    MachinesLost,
    MoveRequested,
    PlaceRequested,
    PlanSteered,
    RollRequested,
    SlowFound,
    SlowMeasured,
    SlowSuspected,
    StepsUnequal,
    StopRequested,
    StoreMoved,
    Tick,
    UncordonRequested,
    WorkerSaid,
    WorkersSaid,
)
from trainmover.controller.keep.checkpoints import not_published, published, tend_checkpoints, wrote
from trainmover.controller.keep.cuts import between_steps, snapped, tend_snapshots
from trainmover.controller.keep.last_checkpoint import matters, tend_last
from trainmover.controller.keep.stopping import end_if_stopped, stop
from trainmover.controller.machines import (
    controller_returned,
    kill,
    machine_joined,
    machines_lost,
    worker_exited,
    worker_up,
)
from trainmover.controller.policies.anomalies.answer import anomaly_found
from trainmover.controller.policies.anomalies.told import sign_told
from trainmover.controller.policies.capacity.answers import (
    denied,
    granted,
    noticed,
)
from trainmover.controller.policies.capacity.wanting import tend_capacity
from trainmover.controller.policies.guard import guarded
from trainmover.controller.policies.health.examine import (
    examine,
    examined,
    forget_lost,
    waits_for_health,
)
from trainmover.controller.policies.maintenance.drain import drain
from trainmover.controller.policies.maintenance.leaving import leaving, move_leaving
from trainmover.controller.policies.plans.steering import begin_plan, steer_plan, tend_plan
from trainmover.controller.policies.stragglers.answer import (
    slow_found,
    slow_measured,
    slow_suspected,
)
from trainmover.controller.standby.binding import bind_ready
from trainmover.controller.standby.cordon import cordon, uncordon
from trainmover.controller.standby.standbys import (
    held,
    joiner_parked,
    left,
    sandbox_said_no,
    warmed,
)
from trainmover.controller.standby.warming import recorded, steps_changed, tend_standbys
from trainmover.controller.standstill.condemned import stack_told
from trainmover.controller.standstill.contact import contact_changed
from trainmover.controller.standstill.hanging import judge, moves, stands, worker_state
from trainmover.controller.standstill.probing import reached
from trainmover.controller.start import gather
from trainmover.controller.state import Job, Kind, Phase, Stage
from trainmover.controller.store import store_moved
from trainmover.controller.values import replace
from trainmover.ids import MachineId
from trainmover.protocol.messages import (
    WORKER_FACTS,
    AtBoundary,
    Attached,
    BetweenSteps,
    Committed,
    Examined,
    Fingerprinted,
    Finished,
    Held,
    Interrupted,
    Leaving,
    Left,
    Loaded,
    Moves,
    Parked,
    Position,
    Prepared,
    Raised,
    Reached,
    Recorded,
    SandboxFailed,
    Sign,
    Snapped,
    Stack,
    Stands,
    StepsChanged,
    Switched,
    Taking,
    Unproven,
    VaultHeld,
    Warm,
    Warned,
    Watched,
    Weighed,
    WentOn,
    WorkerExited,
    WorkerState,
    WorkerUp,
    Wrote,
)


def decide(job: Job, event: EVENTS) -> Decision:
    """Apply one event. Equal inputs give equal outputs."""
    begun = settled = job
    if job.phase is Phase.ENDED or (job.saves_last and not matters(event)):
        return _too_late(job, event)
    match event:
        case MachineJoined():
            job, effects = machine_joined(job, event)
        case MachinesLost():
            job, effects = machines_lost(job, event)
        case WorkerSaid():
            job, effects = _worker_said(job, event)
        case WorkersSaid():
            job, effects = _workers_said(job, event)
        case AgentSaid():
            job, effects = _agent_said(job, event)
        case MoveRequested():
            job, effects = request_move(job, event)
        case KillRequested():
            job, effects = kill(job, event)
        case CordonRequested():
            job, effects = cordon(job, event)
        case UncordonRequested():
            job, effects = uncordon(job, event)
        case DrainRequested():
            job, effects = drain(job, event)
        case RollRequested() | PlaceRequested():
            job, effects = begin_plan(job, event)
        case PlanSteered():
            job, effects = steer_plan(job, event)
        case HealthRequested():
            job, effects = examine(job, event)
        case StopRequested():
            job, effects = stop(job, event)
        case Tick():
            job, effects = tick(job, event.at_us)
        case ControllerReturned():
            job, effects = controller_returned(job, event), ()
        case ContactChanged():
            job, effects = contact_changed(job, event), ()
        case StoreMoved():
            job, effects = store_moved(job, event)
        case CheckpointPublished():
            job, effects = published(job, event), ()
        case CheckpointFailed():
            job, effects = not_published(job, event), ()
        case CheckpointFound():
            job, effects = found(job, event)
        case MachinesGranted():
            job, effects = guarded(job, "capacity", partial(granted, job, event))
        case MachinesDenied():
            job, effects = guarded(job, "capacity", partial(denied, job, event))
        case EngineNoticed():
            job, effects = guarded(job, "capacity", partial(noticed, job, event))
        case AnomalyFound():
            job, effects = guarded(job, "anomalies", partial(anomaly_found, job, event))
        case SlowSuspected():
            job, effects = guarded(job, "stragglers", partial(slow_suspected, job, event))
        case SlowFound():
            job, effects = guarded(job, "stragglers", partial(slow_found, job, event))
        case StepsUnequal():
            job, effects = steps_unequal(job, event), ()
        case SlowMeasured():
            job, effects = guarded(job, "stragglers", partial(slow_measured, job, event))
        case _:
            assert_never(event)
    bound: tuple[Effect, ...] = ()
    if _has_new_joiners(job, settled):  # They are judged as joiners already.
        job, bound = _bind(job, settled, None)
    job, judged = judge(job, event.at_us)
    forgotten: tuple[Effect, ...] = ()
    given_up = any(isinstance(effect, Fence) for effect in judged)  # As another joins, it may be.
    if given_up or len(job.machines) < len(settled.machines):
        job, forgotten = guarded(job, "health", partial(forget_lost, job, event.at_us))
    speaks = WorkerSaid | WorkersSaid | AgentSaid
    machine = event.machine if isinstance(event, speaks) else None
    job, more = _settle(job, event.at_us, settled, machine)
    tend = partial(tend_capacity, job, begun, event.at_us)
    job, wanted = guarded(job, "capacity", tend)
    job, closed = let_go(job)
    return job, effects + bound + judged + forgotten + more + wanted + closed


def _too_late(job: Job, event: EVENTS) -> Decision:
    if isinstance(event, REQUESTS):
        how = "has ended" if job.phase is Phase.ENDED else "is about to end"
        text = f"The job {how}: nothing was done."
        return job, (Answer(event.request, ok=False, text=text),)
    match event:
        case MachinesLost():
            return without_machines(job, [one.machine for one in event.lost]), ()
        case _:
            return job, ()


def _settle(job: Job, at_us: int, settled: Job, machine: MachineId | None) -> Decision:
    """Advance whatever waits for facts, until nothing moves any more.

    settled  as it was left by the event before
    machine  the only one that has said something since; None: any may be another
    """
    effects: tuple[Effect, ...] = ()
    while job.phase is not Phase.ENDED:
        before = job
        job, bound = _bind(job, settled, machine)
        settled, machine = job, None
        job, more = _advance(job, at_us)
        effects += bound + more
        if job is before or job == before:
            break
    return job, effects


def _bind(job: Job, settled: Job, machine: MachineId | None) -> Decision:
    """Joiners that can be bound now. Only those that may be others than in `settled` are looked
    at: all machines join where all go back, and each of them says many things."""
    change = job.change
    if change is None:
        return job, ()
    waits = change.stage is Stage.BIND or change.kind is not Kind.MOVE
    if not waits or change.stage is Stage.SWITCH:
        return job, ()
    if _has_new_joiners(job, settled):
        return bind_ready(job)
    if job.machines is settled.machines and job.cut is settled.cut:
        return job, ()
    return bind_ready(job, machine)


def _has_new_joiners(job: Job, settled: Job) -> bool:
    change, before = job.change, settled.change
    if change is None or before is None:
        return change is not None
    return change.joiners is not before.joiners or change.hedges is not before.hedges


def _advance(job: Job, at_us: int) -> Decision:
    if job.phase in (Phase.GATHERING, Phase.STARTING):
        return (job, ()) if waits_for_health(job) else gather(job, at_us)
    if job.saves_last:
        return tend_last(job, at_us)
    if job.phase is Phase.ENDING:
        job, answers = answer_done_moves(job)
        job, more = end_when_all_left(job)
        return job, answers + more
    job, stopped = end_if_stopped(job, at_us)
    if job.phase is Phase.ENDED:
        return job, stopped
    job, write = tend_checkpoints(job, at_us)
    change = job.change
    if change is None:
        job, answers = answer_done_moves(job)
        job, keep = tend_snapshots(job)
        job, moving = guarded(job, "divergence", partial(replace_diverged, job, at_us))
        if job.change is None:
            job, moving = guarded(job, "maintenance", partial(move_leaving, job, at_us))
        if job.change is not None:
            return job, write + answers + keep + moving
        job, more = guarded(job, "plans", partial(tend_plan, job, at_us))
        if job.change is None:
            job, tended = tend_standbys(job)
            more += tended
        return job, write + answers + keep + more
    advance = advance_move if change.kind is Kind.MOVE else advance_recovery
    job, more = advance(job, at_us)
    return job, write + more


def _agent_said(job: Job, event: AgentSaid) -> Decision:
    if event.machine not in job.machines:
        return job, ()
    match event.fact:
        case WorkerExited():
            return worker_exited(job, event.machine, event.fact, event.at_us)
        case VaultHeld():
            return vault_held(job, event.machine, event.fact), ()
        case WorkerState():
            return worker_state(job, event.machine, event.fact, event.at_us), ()
        case Stack():
            return stack_told(job, event.machine, event.fact), ()
        case Examined():
            act = partial(examined, job, event.machine, event.fact, event.at_us)
            return guarded(job, "health", act)
        case Reached():
            return reached(job, event.machine, event.fact), ()
        case Sign():
            act = partial(sign_told, job, event.machine, event.fact, event.at_us)
            return guarded(job, "anomalies", act)
        case Leaving():
            return leaving(job, event.machine, event.fact, event.at_us), ()
        case _:
            assert_never(event.fact)


def _workers_said(job: Job, event: WorkersSaid) -> Decision:
    """One after the other; what follows from all of it is settled once."""
    effects: tuple[Effect, ...] = ()
    for fact in event.facts if event.machine in job.machines else ():
        local_rank = fact.rank % job.spec.nproc
        job, more = _said(job, event.machine, local_rank, fact, event.at_us)
        effects += more
    return job, effects


def _worker_said(job: Job, event: WorkerSaid) -> Decision:
    if event.machine not in job.machines:
        return job, ()
    return _said(job, event.machine, event.local_rank, event.fact, event.at_us)


def _said(
    job: Job, machine: MachineId, local_rank: int, fact: WORKER_FACTS, at_us: int
) -> Decision:
    if isinstance(fact, WorkerUp):
        return worker_up(job, machine, local_rank, fact, at_us)
    if local_rank not in job.machines[machine].workers:
        return job, ()  # Of a process that is being replaced.
    match fact:
        case Attached(rank=rank):
            return replace(job, attached=job.attached.having(rank)), ()
        case Recorded(rank=rank):
            if job.rank_of(machine, local_rank) != rank:
                return job, ()
            return recorded(job, fact), ()
        case Warm():
            return warmed(job, machine, local_rank, fact, at_us)
        case Held():
            return held(job, machine, local_rank, fact, at_us)
        case Parked():
            return joiner_parked(job, machine, local_rank, fact, at_us)
        case SandboxFailed():
            return sandbox_said_no(job, machine, fact, at_us)
        case Left():
            return left(job, machine, local_rank), ()
        case Committed():
            return committed(job, fact, at_us), ()
        case Snapped() if job.rank_of(machine, local_rank) == fact.rank:
            return snapped(job, fact)
        case Wrote() if job.saves_last or job.rank_of(machine, local_rank) == fact.rank:
            return wrote(job, fact, at_us)
        case Fingerprinted() if job.rank_of(machine, local_rank) == fact.rank:
            return compared(job, fact), ()
        case StepsChanged() if job.rank_of(machine, local_rank) == fact.rank:
            return steps_changed(job, fact), ()
        case Snapped() | Wrote() | Fingerprinted() | StepsChanged():
            return job, ()
        case Finished():
            return finished(job, machine, local_rank, fact, at_us)
        case WentOn() | Raised() if job.rank_of(machine, local_rank) != fact.rank:
            return job, ()  # A leaver that is being unwound: its ranks live elsewhere.
        case WentOn():
            return went_on(job, fact)
        case Raised():
            return raised(job, machine, fact, at_us)
        case Interrupted():
            return interrupted(job, fact, at_us)
        case Stands() | Moves() if job.rank_of(machine, local_rank) != fact.rank:
            return job, ()
        case Stands():
            return stands(job, fact, at_us), ()
        case Moves():
            return moves(job, fact), ()
        case BetweenSteps() if job.rank_of(machine, local_rank) == fact.rank:
            return between_steps(job, fact), ()
        case Unproven():
            return unproven(job, machine, fact, at_us)
        case BetweenSteps() | Warned() | Taking() | Weighed() | Watched():
            return job, ()
        case Prepared() | Position() | AtBoundary() | Loaded() | Switched():
            return about_change(job, machine, fact, at_us)
        case _:
            assert_never(fact)
