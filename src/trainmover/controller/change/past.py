# SPDX-License-Identifier: Apache-2.0
"""Incidents that are over leave the job; what of them still decides something stays. Pure.

    open -> over -> KEPT newer ones -> Closed(incident) for the host, a brief of it for the job
                                       -> BRIEFS newer ones -> nothing

What thousands of ranks have said for an incident that is long over would be in every bookmark and
every status. The journal has it: replaying its events gives the same `Closed` again.
"""

from trainmover.controller.effects import Closed, Effect
from trainmover.controller.facts import Ranks
from trainmover.controller.state import Incident, Job
from trainmover.controller.values import replace
from trainmover.ids import Rank

KEPT = 8
"""Incidents that the job has whole, the open one among them."""
BRIEFS = 128
"""Of so many before those it has a brief."""
CERTIFICATES, STACKS = 4, 2
STACK_CHARS = 2000
"""Of the end of a stack: the main thread comes last."""


def let_go(job: Job) -> tuple[Job, tuple[Effect, ...]]:
    """Let go of past incidents at the end of a decision."""
    over = job.incidents[:-KEPT]
    if not over:
        return job, ()
    briefs = (*job.briefs, *map(brief, over))[-BRIEFS:]
    job = replace(job, incidents=job.incidents[-KEPT:], briefs=briefs)
    return job, tuple(map(Closed, over))


def brief(incident: Incident) -> Incident:
    """Return the incident without what it has for each rank or machine, but for a few."""
    moved = [one for one in incident.certificates if one.bytes]
    return replace(
        incident,
        ranks=incident.ranks[:1],
        lost=incident.lost[:1],
        further=(),
        options=(),
        positions={},
        held={},
        committed_first=Ranks(),
        certificates=tuple(moved[-CERTIFICATES:]),
        stacks={
            Rank(rank): stack[-STACK_CHARS:]
            for rank, stack in list(incident.stacks.items())[:STACKS]
        },
    )
