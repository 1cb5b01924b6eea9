"""All ranks wait in one call and nobody is missing: it may be the links between them. Pure.

The first time the step is retried in place. If they stand in it again, every machine dials the
others, and if some have fewer ways than others, one of the fewest is given up. If all have as many
it is no machine's fault, and they are asked again after a while: a network that comes back, or is
only slow, must find the job there.
"""

from trainmover.controller.effects import Send
from trainmover.controller.machines import can_be_spared, give_up
from trainmover.controller.recovery import interrupt
from trainmover.controller.start import Decision
from trainmover.controller.state import Job
from trainmover.controller.stuck import Probing, Standstill
from trainmover.controller.values import replace
from trainmover.ids import MachineId
from trainmover.protocol.messages import Probe, Reached

ASK_AGAIN_US = 10_000_000


def all_stand(job: Job, standing: list[Standstill], at_us: int) -> Decision:
    """Retry, or ask who reaches whom."""
    longest = min(standing, key=lambda one: one.since_us)
    step = max(one.fact.step for one in standing)
    still_s = (at_us - longest.since_us) / 1e6
    call = longest.fact.call or "a call"
    cause = f"all ranks stood still in step {step} for {still_s:.1f} s: each waits in {call}"
    if job.hanging.retried != step:
        job = replace(job, hanging=replace(job.hanging, retried=step))
        return interrupt(job, cause, machine=None, at_us=at_us, heard_us=longest.since_us)
    if job.hanging.probing is not None or at_us - job.hanging.asked_us < ASK_AGAIN_US:
        return job, ()
    number = job.hanging.probes + 1
    probing = Probing(number, job.epoch, cause, longest.since_us)
    hanging = replace(job.hanging, probing=probing, probes=number, asked_us=at_us)
    job = replace(job, hanging=hanging)
    vaults = {name: job.machines[name].vault for name in job.seats}
    return job, tuple(
        Send(name, Probe(number=number, vaults={n: v for n, v in vaults.items() if n != name}))
        for name in job.seats
    )


def reached(job: Job, machine: MachineId, fact: Reached) -> Job:
    """A machine has dialled the others."""
    probing = job.hanging.probing
    if probing is None or probing.number != fact.number:
        return job
    probing = replace(probing, reached={**probing.reached, machine: fact.machines})
    return replace(job, hanging=replace(job.hanging, probing=probing))


def conclude(job: Job, at_us: int) -> Decision:
    """Once all machines have answered. A change that comes first ends the question."""
    probing = job.hanging.probing
    if probing is None:
        return job, ()
    overtaken = probing.epoch != job.epoch or job.change is not None
    if not overtaken and not set(job.seats) <= set(probing.reached):
        return job, ()
    job = replace(job, hanging=replace(job.hanging, probing=None))
    if overtaken:
        return job, ()
    links = {name: _links(probing.reached, job.seats, name) for name in job.seats}
    worst = min(job.seats, key=lambda name: (links[name], job.machines[name].place))
    if links[worst] == max(links.values()) or not can_be_spared(job, worst):
        return job, ()
    whole = 2 * (len(job.seats) - 1)
    cause = f"{probing.cause}; {worst} has {links[worst]} of {whole} ways to the others"
    return give_up(job, worst, cause, at_us, probing.since_us)


def _links(
    reached: dict[MachineId, list[MachineId]], asked: tuple[MachineId, ...], name: MachineId
) -> int:
    """Ways from and to `name` that work."""
    to_it = sum(name in reached[other] for other in asked if other != name)
    return to_it + len(set(reached[name]) & set(asked))
