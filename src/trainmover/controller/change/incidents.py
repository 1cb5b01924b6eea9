# SPDX-License-Identifier: Apache-2.0
"""Book-keeping of incidents: marks, outcome, downtime; and looking them up. Pure."""

from typing import Any

from trainmover.controller.events import StepsUnequal
from trainmover.controller.facts import Ranks
from trainmover.controller.state import Incident, Job, Outcome
from trainmover.controller.values import kept_for, replace
from trainmover.ids import Epoch
from trainmover.protocol.messages import Committed


def with_incident(job: Job, new: Incident) -> Job:
    """Return the job with one incident more, which is open."""
    return replace(job, incidents=(*job.incidents, new))


def amend(job: Job, number: int, **changes: Any) -> Job:
    """Return the job with one incident changed."""
    return replace(
        job,
        incidents=tuple(
            replace(incident, **changes) if incident.number == number else incident
            for incident in job.incidents
        ),
    )


def steps_unequal(job: Job, event: StepsUnequal) -> Job:
    """Note it with the newest incident, whose first one counts: the job goes on."""
    job = replace(job, unequal=job.unequal + event.count)
    if not job.incidents or job.incidents[-1].unequal:
        return job
    text = f"rank {event.rank} in step {event.step}: {event.text}"
    return amend(job, job.incidents[-1].number, unequal=text)


def in_new_epoch(job: Job, number: int, epoch: Epoch, **changes: Any) -> Job:
    """The incident goes on in that epoch: what ranks have said in the one before is void."""
    return amend(job, number, epoch=epoch, certificates=(), committed_first=Ranks(), **changes)


def incident(job: Job, number: int) -> Incident:
    """Return the incident with this number, which has not left the job."""
    return next(one for one in reversed(job.incidents) if one.number == number)


def mark(job: Job, number: int, phase: str, at_us: int) -> Job:
    """Phase `phase` has ended now. A phase that is gone through again counts to its last end."""
    marks = {name: at for name, at in incident(job, number).marks.items() if name != phase}
    return amend(job, number, marks={**marks, phase: at_us})


def open_incident(job: Job) -> Incident | None:
    """Return the incident that waits for its first commit, or is under way."""
    last = job.incidents[-1] if job.incidents else None
    return last if last is not None and last.outcome is Outcome.OPEN else None


def first_commit(job: Job, fact: Committed, at_us: int) -> Job:
    """Count a rank's first commit of the epoch; the last rank's closes the incident.

    Downtime is what the stayer that stood still longest has measured with its own clock.
    """
    current = open_incident(job)
    if current is None or current.epoch != fact.epoch:
        return job
    if fact.gap_us is not None:
        lost_ms = (fact.gap_us - (fact.median_us or 0)) / 1000.0
        worst = max(lost_ms, current.downtime_ms or 0.0, 0.0)
        step_ms = None if fact.median_us is None else fact.median_us / 1000.0
        job = amend(job, current.number, downtime_ms=worst, step_ms=step_ms)
    return count_rank(job, fact.rank, at_us)


def count_rank(job: Job, rank: int, at_us: int) -> Job:
    """`rank` has committed in the incident's epoch, or will never commit again."""
    current = open_incident(job)
    if current is None or job.epoch != current.epoch:  # Of a change under way it is a later one.
        return job
    ranks = current.committed_first.having(rank)
    job = amend(job, current.number, committed_first=ranks)
    if len(ranks) + len(job.finished) < job.spec.world_size:
        return job  # Of most ranks of a large job that is all.
    if len(ranks.union(job.finished)) < job.spec.world_size:
        return job
    return amend(
        mark(job, current.number, "first_step", at_us), current.number, outcome=Outcome.DONE
    )


@kept_for("briefs", "incidents")
def lately(job: Job) -> tuple[Incident, ...]:
    """Return all that may count for what is decided, oldest first; the older ones as briefs."""
    return (*job.briefs, *job.incidents)


def found(job: Job, number: int) -> Incident | None:
    """Return the incident with this number, maybe as a brief; None: it is longer ago."""
    return next((one for one in reversed(lately(job)) if one.number == number), None)


def next_number(job: Job) -> int:
    """Return the number of the incident that is to be opened."""
    return job.incidents[-1].number + 1 if job.incidents else 1
