# SPDX-License-Identifier: Apache-2.0
"""What an engine answers, taken into the job. Nothing it says is believed without need. Pure.

A name counts once, and only if it was wanted; a node counts once; a machine that is there is not
given up because its engine says so.
"""

from trainmover.controller.change.seats import with_cordon
from trainmover.controller.effects import Decision, Effect, Release, end
from trainmover.controller.events import (
    EngineNoticed,
    Granted,
    MachinesDenied,
    MachinesGranted,
)
from trainmover.controller.policies.capacity.known import (
    LASTING,
    Grant,
    NoticeKind,
    Returned,
)
from trainmover.controller.policies.capacity.wanting import (
    KEPT_US,
    give_back,
    with_grant,
    with_want,
)
from trainmover.controller.state import Cordon, Job, Phase
from trainmover.controller.values import replace

RETRY_US = 60_000_000
"""After a denial that the engine itself would not mend."""


def granted(job: Job, event: MachinesGranted) -> Decision:
    """Machines are on their way, or there already."""
    effects: list[Effect] = []
    for one in event.machines:
        known = job.capacity.grants.get(one.machine)
        if known is not None and known.returned is None:
            if not known.node:  # It has joined before its engine said so.
                job = with_grant(job, None, one.machine, replace(known, node=one.node))
        elif known is not None and known.returned is not None:
            effects.append(Release(one.machine, known.returned))
        else:
            job, more = _take(job, one, event.at_us)
            effects += more
    return _forget(job, event.at_us), tuple(effects)


def _take(job: Job, one: Granted, at_us: int) -> Decision:
    """A name that was not granted before."""
    want = next((w for w in job.capacity.wants.values() if one.machine in w.names), None)
    if want is None and one.machine in job.machines:
        return job, ()  # It came by itself, and is none of the engine's.
    why = _why_not(job, one.node, wanted=want is not None)
    job = with_grant(job, want, one.machine, Grant(node=one.node, granted_us=at_us))
    return (job, ()) if why is None else give_back(job, one.machine, why, at_us)


def _why_not(job: Job, node: str, *, wanted: bool) -> Returned | None:
    if not wanted:
        return Returned.UNWANTED
    held = (grant.node for grant in job.capacity.grants.values() if grant.returned is None)
    return Returned.TWICE if node and node in held else None


def denied(job: Job, event: MachinesDenied) -> Decision:
    """Nothing comes for now. A job that has not begun ends if no time would mend it."""
    want = job.capacity.wants.get(event.want)
    if want is None:
        return job, ()
    if event.why in LASTING and job.phase is Phase.GATHERING and not job.machines:
        text = (
            f"The engine grants no machine: {event.text}.\n"
            "Nothing was begun; the job has ended.\n"
            "Mend what it names (--engine-args), and start the job again."
        )
        return end(job, 1, text)
    retry_us = event.at_us + max(event.retry_ms * 1000, 0 if event.retry_ms else RETRY_US)
    return with_want(job, replace(want, denied=event.why, retry_us=retry_us)), ()


def noticed(job: Job, event: EngineNoticed) -> Decision:
    """A machine will be taken away: as if it had said so itself. One that is gone before it has
    joined was never granted; one that is there tells by its link."""
    grant = job.capacity.grants.get(event.machine)
    if grant is None or grant.returned is not None:
        return job, ()
    if event.kind == NoticeKind.GONE:
        if event.machine in job.machines:
            return job, ()
        job = replace(job, capacity=replace(job.capacity, words=event.text))
        return give_back(job, event.machine, Returned.LOST, event.at_us)
    if job.spec.notices != "act" or event.machine not in job.machines:
        return job, ()
    reason = event.text or event.kind
    known = job.cordoned.get(event.machine, Cordon(event.at_us))
    if event.kind == NoticeKind.DRAIN:
        cordon = replace(known, reason=known.reason or reason, drained=True)
    else:
        until_us = event.at_us + 1000 * event.left_ms
        cordon = replace(known, reason=known.reason or reason, until_us=until_us)
    return with_cordon(job, event.machine, cordon), ()


def _forget(job: Job, at_us: int) -> Job:
    """Names that were given back long ago, and are no machine's."""
    kept = {
        name: grant
        for name, grant in job.capacity.grants.items()
        if grant.returned is None or name in job.machines or at_us < grant.granted_us + KEPT_US
    }
    if len(kept) == len(job.capacity.grants):
        return job
    return replace(job, capacity=replace(job.capacity, grants=kept))
