# SPDX-License-Identifier: Apache-2.0
"""Machines are examined before they take ranks, and when somebody asks. Pure.

`watch` says what was found. `act` cordons a machine from when it joins to when it has passed, and
whoever fails stays cordoned, with the figure; people may uncordon it. A job that begins waits until
all its machines have been examined: then there are others to compare with. A standby may take the
place of one that has failed by then.

An examination takes seconds and ends by itself, at the agent: it is never waited for without end.
"""

from trainmover.controller.change.move import unknown_machine, why_not_running
from trainmover.controller.change.seats import with_cordon, without_cordon
from trainmover.controller.effects import Answer, Decision, Effect, Send
from trainmover.controller.events import HealthRequested
from trainmover.controller.policies.health.figures import CLOCK, in_words, norms_of, too_far_off
from trainmover.controller.policies.health.known import Examination, Health
from trainmover.controller.start import lost_early
from trainmover.controller.state import Cordon, Job, Phase
from trainmover.controller.values import replace
from trainmover.ids import MachineId
from trainmover.protocol.messages import Examine, Examined

PEERS = 3
"""Machines that joined last: the way to those among them is measured."""
WAITS = "its health is not known yet"


def examine_joined(job: Job, machine: MachineId, at_us: int) -> Decision:
    """A machine has joined, for the first time or again: nothing is known of it."""
    newest = (*(name for name in job.health.newest if name != machine), machine)[-PEERS:]
    job = replace(job, health=replace(job.health, newest=newest))
    if job.spec.health == "off":
        return job, ()
    begins = job.phase is Phase.GATHERING  # Nobody takes ranks then.
    if job.spec.health == "act" and not begins and machine not in job.cordoned:
        job = with_cordon(job, machine, Cordon(at_us, WAITS, health=True))
    return _begun(job, machine, "")


def examine(job: Job, event: HealthRequested) -> Decision:
    """Answered when the machine has been examined, or at once if it cannot be."""
    machine = MachineId(event.machine)
    if why := _why_not(job, machine):
        return job, (Answer(event.request, ok=False, text=why),)
    return _begun(job, machine, event.request)


def _why_not(job: Job, machine: MachineId) -> str:
    if machine not in job.machines:
        return unknown_machine(job, machine)
    if why := why_not_running(job):
        return why
    taken = () if job.change is None else job.change.joiners.values()
    if machine in job.seats or machine in taken:
        return (
            f"{machine} has ranks: an examination would hold them up.\nNothing was done.\n"
            f"Move them first: trainmover drain {machine}"
        )
    known = job.health.of.get(machine)
    if known is not None and not known.judged:
        return f"{machine} is being examined.\nNothing was done.\nAsk again in a moment."
    return ""


def _begun(job: Job, machine: MachineId, request: str) -> Decision:
    known = job.health
    number = known.asked + 1
    peers = {
        name: job.machines[name].vault
        for name in known.newest
        if name != machine and name in job.machines
    }
    of = known.of.having(machine, Examination(number, request))
    job = replace(job, health=Health(number, known.newest, of, known.untold + 1))
    return job, (Send(machine, Examine(number=number, peers=peers)),)


def examined(job: Job, machine: MachineId, fact: Examined, at_us: int) -> Decision:
    """Its agent says what was measured."""
    known = job.health.of.get(machine)
    if known is None or known.told or known.number != fact.number:
        return job, ()  # Of an examination before.
    figures = dict(fact.figures)
    if fact.clock_us:
        figures[CLOCK] = (fact.clock_us - at_us - job.wall_ahead_us) / 1000
    told = replace(known, figures=figures, wrong=fact.failed, told=True)
    job = _with(job, machine, told)
    job = replace(job, health=replace(job.health, untold=job.health.untold - 1))
    return judge_examined(job, at_us)


def judge_examined(job: Job, at_us: int) -> Decision:
    """All that can be judged now. Where the job waits for its begin all are, at once."""
    if waits_for_health(job):
        return job, ()
    norms = norms_of([one.figures for one in job.health.of.values()])
    effects: tuple[Effect, ...] = ()
    for machine, one in job.health.of.items():
        if one.told and not one.judged and job.phase is not Phase.ENDED:
            failed = one.wrong or too_far_off(one.figures, norms)
            job, more = _judged(job, machine, replace(one, judged=True, failed=failed), at_us)
            effects += more
    return job, effects


def waits_for_health(job: Job) -> bool:
    """Whether the job is not to begin yet."""
    return job.phase is Phase.GATHERING and job.spec.health == "act" and job.health.untold > 0


def _judged(job: Job, machine: MachineId, one: Examination, at_us: int) -> Decision:
    effects: tuple[Effect, ...] = ()
    if one.request:
        text = f"{machine} is fit: {in_words(one.figures)}"
        if one.failed:
            stays = job.spec.health == "act"
            do = "It takes no ranks." if stays else f"Keep it out: trainmover cordon {machine}"
            what = (f"{machine} is not fit: {one.failed}.", in_words(one.figures), do)
            text = "\n".join(filter(None, what))
        effects = (Answer(one.request, ok=not one.failed, text=text),)
    job = _with(job, machine, replace(one, request=""))
    if job.spec.health != "act":
        return job, effects
    if not one.failed:
        return _given_free(job, machine), effects
    known = job.cordoned.get(machine)
    if known is None or known.health or known.spared:
        failing = known is not None and known.failing
        unfit = Cordon(at_us, f"not fit: {one.failed}", health=True, failing=failing)
        job = with_cordon(job, machine, unfit)
    if job.phase is Phase.GATHERING:
        job, more = lost_early(job, machine, f"it is not fit: {one.failed}")
        effects += more
    return job, effects


def forget_lost(job: Job, at_us: int) -> Decision:
    """Machines that are gone: who has asked about one is told, and nobody waits for it."""
    gone = {name: one for name, one in job.health.of.items() if name not in job.machines}
    answers = tuple(
        Answer(one.request, ok=False, text=f"{name} was lost.\nThe job goes on.\nSee its logs.")
        for name, one in gone.items()
        if one.request
    )
    of = job.health.of.without(gone.keys())
    untold = job.health.untold - sum(not one.told for one in gone.values())
    job = replace(job, health=replace(job.health, of=of, untold=untold))
    for name, one in gone.items():
        if not one.judged:
            job = _given_free(job, name)
    job, more = judge_examined(job, at_us)
    return job, answers + more


def keeps_out(job: Job, machine: MachineId) -> bool:
    """Whether it was examined, and takes no ranks for what was found."""
    cordon, one = job.cordoned.get(machine), job.health.of.get(machine)
    return cordon is not None and cordon.health and one is not None and bool(one.failed)


def _given_free(job: Job, machine: MachineId) -> Job:
    """Unless somebody else keeps it out, or it seems about to fail."""
    known = job.cordoned.get(machine)
    if known is None or not known.health:
        return job
    if known.failing:
        out = Cordon(known.at_us, "about to fail", failing=True, spared=True)
        return with_cordon(job, machine, out)
    return without_cordon(job, machine)


def _with(job: Job, machine: MachineId, one: Examination) -> Job:
    return replace(job, health=replace(job.health, of=job.health.of.having(machine, one)))
