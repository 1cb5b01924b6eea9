# SPDX-License-Identifier: Apache-2.0
"""What happened, in one human sentence per event. Pure."""

from dataclasses import dataclass

from trainmover.controller.change.losses import losses_text
from trainmover.controller.change.move import who_moves
from trainmover.controller.compare.roles import kinds
from trainmover.controller.events import (
    AgentSaid,
    AnomalyFound,
    CheckpointFailed,
    CheckpointFound,
    CheckpointPublished,
    CordonRequested,
    DrainRequested,
    Event,
    HealthRequested,
    KillRequested,
    MachineJoined,
    MachinesGranted,
    MachinesLost,
    MoveRequested,
    PlaceRequested,
    RollRequested,
    SlowFound,
    SlowMeasured,
    StepsUnequal,
    StopRequested,
    StoreMoved,
    Tick,
    UncordonRequested,
    WorkerSaid,
)
from trainmover.controller.keep.checkpoints import late_text, writer_due
from trainmover.controller.listed import some_of
from trainmover.controller.policies.guard import broken_text
from trainmover.controller.policies.health.figures import in_words
from trainmover.controller.policies.health.known import Examination
from trainmover.controller.policies.maintenance.lateness import may_be_late
from trainmover.controller.policies.stragglers.answer import evidence, outcome_text
from trainmover.controller.state import Incident, Job, Kind, Machine, MachineState, Outcome, Phase
from trainmover.ids import MachineId
from trainmover.protocol.messages import (
    Examined,
    Finished,
    Leaving,
    Moves,
    Raised,
    Sign,
    Stack,
    Stands,
    StepsChanged,
    Warned,
    WorkerExited,
    WorkerFact,
    WorkerState,
    Wrote,
)
from trainmover.server.ranks import ranks_named
from trainmover.server.view.divergences import divergence_text, is_news, parted_text
from trainmover.server.view.engine import engine_sentences
from trainmover.server.view.phases import phases_text
from trainmover.server.view.plans import plan_sentences
from trainmover.server.view.protection import cuts_are_off, depends_on_cuts, is_protected, protected
from trainmover.server.view.watching import stands_text


@dataclass(frozen=True)
class Sentence:
    """loud: worth a line on the screen of whoever runs the job. good: nothing to worry about."""

    text: str
    loud: bool = False
    good: bool = False


SILENCE = Sentence("")
LOST_LINK = " lost a link"


def sentence(before: Job, event: Event, after: Job) -> Sentence:
    """The most important thing the event has brought about; SILENCE if nobody would care."""
    said = _sentence(before, event, after)
    if before.capacity is after.capacity and before.cordoned is after.cordoned:
        return said
    if not (wanted := engine_sentences(before, event, after)):
        return said
    loud = said.loud or not isinstance(event, MachinesGranted)
    return Sentence("\n".join(filter(None, (said.text, *wanted))), loud=loud, good=said.good)


def _sentence(before: Job, event: Event, after: Job) -> Sentence:
    if raised := after.broken_policies.keys() - before.broken_policies.keys():
        return Sentence(_broken(after, sorted(raised)), loud=True)
    if after.no_snapshots and not before.no_snapshots:
        return Sentence(_no_snapshots(after), loud=True)
    if after.between and not before.between:
        return Sentence(depends_on_cuts(after), loud=cuts_are_off(after))
    incidents = [*incident_sentences(before, after), *plan_sentences(before, after)]
    if new := after.comparison.divergences[len(before.comparison.divergences) :]:
        text = "\n".join([*(divergence_text(d, after) for d in new), *incidents])
        return Sentence(text, loud=bool(incidents) or is_news(before, new))
    if after.comparison.apart != before.comparison.apart:
        return Sentence("\n".join([parted_text(before, after), *incidents]), loud=True)
    if after.all_recorded and not before.all_recorded:
        return Sentence(
            "\n".join([*incidents, protected(after)]), loud=True, good=is_protected(after)
        )
    if incidents:
        return Sentence("; ".join(incidents), loud=after.code is None)  # else the end says it
    if after.phase is not before.phase and after.phase is Phase.RUNNING:
        unfit = _unfit(before, after)
        return Sentence("\n".join([*unfit, _running(after)]), loud=bool(unfit))
    if said := _of_checkpoint(event, before):
        return said
    said = _of_event(before, event, after)
    return said if said.text else _of_machines(before, after)


def _of_checkpoint(event: Event, before: Job) -> Sentence | None:
    match event:
        case CheckpointPublished(checkpoint=checkpoint):
            size = f"{checkpoint.bytes / 1e6:.1f} MB"
            return Sentence(f"the checkpoint of step {checkpoint.step} is written, {size}")
        case CheckpointFailed(step=step, why=why):
            return _no_checkpoint(step, why, before)
        case WorkerSaid(fact=Wrote(refused=str(why)) as fact) if why and before.writing:
            return _no_checkpoint(fact.step, f"rank {fact.rank}: {why}", before)
        case CheckpointFound(damaged=[_, *_] as damaged):
            return Sentence("\n".join(damaged), loud=True)
        case Tick() if before.writing is not None and writer_due(before, event.at_us):
            return _no_checkpoint(before.writing.step, late_text(before, event.at_us), before)
        case _:
            return None


def _no_checkpoint(step: int, why: str, job: Job) -> Sentence:
    stays = f"; that of step {job.checkpoint.step} stays" if job.checkpoint is not None else ""
    text = f"the checkpoint of step {step} was given up ({why}): the job trains on{stays}"
    return Sentence(text, loud=True)


def incident_sentences(before: Job, after: Job) -> list[str]:
    """One for every incident that was opened or closed."""
    known = {incident.number: incident for incident in before.incidents}
    sentences = []
    for incident in after.incidents:
        old = known.get(incident.number)
        if old is None:
            sentences.append(_opened(incident, after))
        elif incident.rung == 3 and old.rung != 3:
            disk = after.change is not None and after.change.disk
            where = "newest checkpoint" if disk else "beginning"
            sentences.append(f"{incident.why_rung} -> all start again from the {where}")
        elif incident.rung == 2 and old.rung != 2:
            sentences.append(f"{incident.why_rung} -> all ranks go back to step {incident.step}")
        elif old.joiner is None and incident.joiner is not None:
            why = "" if incident.cause == old.cause else f"{incident.cause} -> "
            sentences.append(f"{why}{incident.joiner} takes {ranks_named(incident.ranks)}")
        if (old is None or old.outcome is Outcome.OPEN) and incident.outcome is not Outcome.OPEN:
            sentences.append(_closed(incident))
    return sentences


def _broken(job: Job, policies: list[str]) -> str:
    return "; ".join(broken_text(name, job.broken_policies[name]) for name in policies)


def _no_snapshots(job: Job) -> str:
    return (
        f"no more snapshots are kept ({job.no_snapshots}): the job trains on, but what one machine "
        "alone holds would be lost with it; give agents more memory, or use --checkpoint"
    )


def _opened(incident: Incident, job: Job) -> str:
    if incident.kind is Kind.MOVE:
        _, asked, reason = incident.cause.partition("was asked for")
        reason = reason.removeprefix(": ") if asked else incident.cause
        why = f" ({reason})" if reason else ""
        return f"{who_moves(incident)}: moving {ranks_named(incident.ranks)}{why}"
    if incident.rung == 3 and incident.step is not None:
        return incident.cause
    if incident.rung == 3:
        return f"{incident.cause} -> the job starts again ({incident.why_rung})"
    if job.change is not None and job.change.missing:
        until = f"from {job.spec.engine}" if job.spec.engine else f"at most {job.spec.wait_s} s"
        return f"{incident.cause} -> the job waits for a machine, {until}"
    if incident.joiner is None:
        return f"{_seen(incident)}: ranks stop; if all machines are there, the step is run again"
    return f"{incident.cause} -> {incident.joiner} takes {ranks_named(incident.ranks)}"


def _seen(incident: Incident) -> str:
    """Return what was seen first, without a system's words; `trainmover incident` has those. What a
    broken link means is known only when it is known which machine is behind it."""
    who, lost, _ = incident.cause.partition(LOST_LINK)
    return f"{who}{LOST_LINK}" if lost else incident.cause


def _closed(incident: Incident) -> str:
    if incident.outcome is Outcome.SUPERSEDED or incident.note.startswith("overtaken: "):
        return f"incident {incident.number} is superseded: see incident {incident.number + 1}"
    if incident.outcome is not Outcome.DONE:
        return f"incident {incident.number} {incident.outcome}: {incident.note}"
    planned = incident.kind is Kind.MOVE
    down = ""
    if incident.downtime_ms is not None:
        down = f": {'pause' if planned else 'downtime'} {incident.downtime_ms:.0f} ms"
    after = f" after step {incident.step}" if incident.step is not None else ""
    if incident.redone:
        after += f", {incident.redone} step{'s' * (incident.redone > 1)} to be made again"
    alone = "retried in place" if incident.rung < 2 else "all ranks train on"
    who = who_moves(incident) if incident.joiner else alone
    return f"{who}{after}{down}{phases_text(incident)}{_state(incident)}"


def _state(incident: Incident) -> str:
    if not incident.certificates:
        return ""
    equal = all(certificate.equal for certificate in incident.certificates)
    size = sum(certificate.bytes for certificate in incident.certificates) / 1e6
    held = sum(certificate.held for certificate in incident.certificates) / 1e6
    direct = sum(certificate.direct for certificate in incident.certificates) / 1e6
    way = f", {direct:.1f} of them from device to device" if direct else ""
    there = f" and {held:.1f} MB that were there" if held else ""
    return f"; state {'equal' if equal else 'DIFFERS'}, {size:.1f} MB{way}{there}"


def _running(job: Job) -> str:
    seats = ", ".join(
        f"{machine} has {ranks_named(tuple(job.spec.ranks(slot)))}"
        for machine in job.seats
        if (slot := job.slot_of(machine)) is not None
    )
    return f"membership {job.epoch}: {seats}"


def _of_event(before: Job, event: Event, after: Job) -> Sentence:
    match event:
        case MachineJoined():
            return Sentence(f"{event.machine} joined" + (" as a standby" * event.standby))
        case MachinesLost():
            names = [one.machine for one in event.lost]
            if all(map(before.is_announced, names)) and not set(names) & set(before.seats):
                verb = "has" if len(names) == 1 else "have"
                return Sentence(f"{some_of(names, 6)} {verb} left, as announced")
            return Sentence(losses_text(event.lost), loud=after.code is None)
        case MoveRequested():
            return Sentence(f"a move of {event.machine} was asked for and refused")
        case KillRequested():
            return _of_kill(event, after)
        case CordonRequested() | UncordonRequested():
            return _of_cordon(event, before, after)
        case DrainRequested():
            return _of_drain(event, before, after)
        case HealthRequested():
            return Sentence(f"to examine {event.machine} was asked for")
        case AgentSaid(fact=Examined()):
            return _of_health(before, after)
        case RollRequested() | PlaceRequested():
            return Sentence("a plan was asked for and refused")
        case StoreMoved():
            return Sentence("the key-value store was lost; groups meet in a new one", loud=True)
        case SlowFound():
            return _of_slow(event, before, after)
        case AnomalyFound() | AgentSaid(fact=Sign()):
            return _of_anomaly(before, after)
        case StepsUnequal():
            more = f", and {event.count - 1} more" if event.count > 1 else ""
            where = f"rank {event.rank} in step {event.step}{more}"
            return Sentence(f"not proved equal: {where}: {event.text}", loud=True)
        case SlowMeasured():
            return _of_measured(before, after)
        case StopRequested():
            return Sentence(f"the job is to stop: {event.why}")
        case AgentSaid(fact=WorkerExited() as fact):
            return Sentence(f"worker {fact.local_rank} of {event.machine} ended ({fact.code})")
        case AgentSaid(fact=WorkerState() as fact):
            now = f"is {fact.state}" if fact.state else "goes on"
            return Sentence(f"worker {fact.local_rank} of {event.machine} {now}")
        case AgentSaid(fact=Leaving() as fact):
            if after.spec.notices == "off":
                return SILENCE
            return Sentence(_of_leaving(event.machine, fact, after), loud=True)
        case AgentSaid(fact=Stack() as fact):
            return Sentence(f"worker {fact.local_rank} of {event.machine} stood at\n{fact.text}")
        case WorkerSaid():
            return _of_worker(event.fact)
        case _:
            return SILENCE


def _of_leaving(machine: MachineId, fact: Leaving, after: Job) -> str:
    """With what keeps its ranks there. A move that begins at once says its own sentence."""
    said = [f"{machine} will be taken away in {fact.left_ms / 1000:.0f} s"]
    if after.spec.notices != "act":
        ranks = "give its ranks to a standby" if machine in after.seats else "let it take no ranks"
        return f"{said[0]}; nothing is done; --notices act would {ranks}"
    if machine not in after.seats:
        return said[0]
    if after.change is None:
        said.append("no standby can take its ranks now")
    elif machine not in after.change.leavers.values():
        said.append("its ranks go when what is under way is done")
        said.append(may_be_late(after, 1000 * fact.left_ms))
    return "; ".join(one for one in said if one)


def _of_kill(event: KillRequested, after: Job) -> Sentence:
    if after.code is not None or event.machine not in after.machines:
        return Sentence(f"a drill on {event.machine} was asked for and refused")
    return Sentence(f"a drill: {event.machine} is to die", loud=True)


def _of_drain(event: DrainRequested, before: Job, after: Job) -> Sentence:
    names, why = ", ".join(event.machines), f" ({event.reason})" if event.reason else ""
    if before.cordoned == after.cordoned:
        return Sentence(f"to drain {names} was asked for and refused")
    here = any(name in after.seats for name in event.machines)
    and_so = ", and their ranks stay where they are" if here else ": they take no ranks"
    return Sentence(f"cordoned{why}: {names}{and_so}", loud=True)


def _of_health(before: Job, after: Job) -> Sentence:
    if unfit := _unfit(before, after):
        return Sentence("\n".join(unfit), loud=True)
    found = _judged(before, after)
    fit = [f"{name} is fit: {in_words(one.figures)}" for name, one in found.items()]
    return Sentence("\n".join(fit))


def _unfit(before: Job, after: Job) -> list[str]:
    """As a job begins several may be found at once."""
    stays = after.spec.health == "act"
    do = "it takes no ranks" if stays else "--health act would keep it out"
    found = _judged(before, after)
    return [f"{name} is not fit: {one.failed}; {do}" for name, one in found.items() if one.failed]


def _judged(before: Job, after: Job) -> dict[MachineId, Examination]:
    if after.health is before.health:
        return {}
    known = before.health.of
    return {n: one for n, one in after.health.of.items() if one.judged and known.get(n) != one}


def _of_slow(event: SlowFound, before: Job, after: Job) -> Sentence:
    if after.stragglers is before.stragglers:
        return SILENCE
    who = ranks_named(tuple(event.ranks))
    where = f"{event.machine} is slow" if event.kind == "machine" else f"{who} is slow"
    if event.peer is not None:
        where = f"the way between {event.machine} and {event.peer} is slow"
    if event.kind == "everybody":
        where = f"all of {who} are slower than before"
    done = after.stragglers.findings[-1].done
    return Sentence(f"{where}: {evidence(event)}; {done}", loud=True)


def _of_anomaly(before: Job, after: Job) -> Sentence:
    """What was found before, within an hour, is not told again."""
    known, found = before.anomalies.findings, after.anomalies.findings
    if not found or (known and found[-1].at_us == known[-1].at_us):
        return SILENCE
    one = found[-1]
    may = " may fail soon" if one.grave else ""
    return Sentence(f"{one.machine}{may}: {one.text}; {one.done}", loud=True)


def _of_measured(before: Job, after: Job) -> Sentence:
    if after.stragglers is before.stragglers:
        return SILENCE
    known = {move.incident: move for move in before.stragglers.moves}
    told = [move for move in after.stragglers.moves if known.get(move.incident) is not move]
    move = told[0]
    return Sentence(f"the move of {move.leaver} to {move.joiner}: {outcome_text(move)}", loud=True)


def _of_cordon(event: CordonRequested | UncordonRequested, before: Job, after: Job) -> Sentence:
    machine, on = event.machine, isinstance(event, CordonRequested)
    if before.cordoned == after.cordoned:
        return Sentence(f"to {'cordon' if on else 'uncordon'} {machine} was asked for and refused")
    if isinstance(event, CordonRequested):
        why = f" ({event.reason})" if event.reason else ""
        return Sentence(f"{machine} is cordoned{why}: it takes no ranks from others", loud=True)
    return Sentence(f"{machine} is not cordoned any more", loud=True)


def _of_worker(fact: WorkerFact) -> Sentence:
    match fact:
        case Raised():
            return Sentence(f"rank {fact.rank} raised {fact.error} in step {fact.step}")
        case Warned():
            return Sentence(f"rank {fact.rank}: {fact.text}", loud=True)
        case StepsChanged():
            return Sentence(
                f"rank {fact.rank} makes other steps than those recorded, seen at step {fact.step}:"
                " standbys prove again what they can"
            )
        case Stands():
            return Sentence(
                stands_text(
                    fact.rank, fact.where, fact.call or fact.place, fact.still_ms / 1e3, fact.step
                )
            )
        case Moves():
            return Sentence(f"rank {fact.rank} goes on")
        case Finished():
            return Sentence(f"the script of rank {fact.rank} ended after step {fact.step}")
        case _:
            return SILENCE


def _of_machines(before: Job, after: Job) -> Sentence:
    """A standby that has become warm, holds a run, or cannot. Most events touch no machine, and the
    others few: to compare all by their fields would cost more than to decide."""
    if before.machines is after.machines:
        return SILENCE
    for machine in after.machines.values():
        old = before.machines.get(machine.id)
        if old is not None and old is not machine:
            said = _of_standby(old, machine, after)
            if said.text:
                return said
    return SILENCE


def _of_standby(old: Machine, machine: Machine, job: Job) -> Sentence:
    if machine.once and not old.once:
        return Sentence(f"{machine.id}: {machine.note}", loud=True)
    if machine.state is MachineState.COLD and old.state is not MachineState.COLD:
        return Sentence(f"{machine.id} is no standby: {machine.note}", loud=True)
    if machine.note and machine.note != old.note:
        return Sentence(f"{machine.id} {machine.note}", loud=True)
    if machine.held is not None and machine.held != old.held:
        ranks = ranks_named(tuple(job.spec.ranks(machine.held)))
        return Sentence(f"{machine.id} is warm: a standby, and holds {ranks}")
    if old.state is MachineState.WARMING and machine.state is MachineState.HOLDING:
        return Sentence(f"{machine.id} has warmed up for {_all_ranks(machine, job)}")
    if old.state is not MachineState.WARM and machine.state is MachineState.WARM:
        return Sentence(f"{machine.id} is warm: a standby")
    return SILENCE


def _all_ranks(machine: Machine, job: Job) -> str:
    able = [slot for first, slots in kinds(job).items() if machine.proven(first) for slot in slots]
    if len(able) == job.spec.machines:
        return "every rank"
    return ranks_named(tuple(rank for slot in sorted(able) for rank in job.spec.ranks(slot)))
