# SPDX-License-Identifier: Apache-2.0
"""What depends on time: proofs grow old, and the wait for a machine ends. Pure."""

from trainmover.controller.change.backoff import let_retry, retry_due
from trainmover.controller.change.incidents import incident
from trainmover.controller.effects import Decision
from trainmover.controller.keep.checkpoints import writer_due
from trainmover.controller.keep.last_checkpoint import nobody_left
from trainmover.controller.policies.capacity.wanting import capacity_due
from trainmover.controller.standby.hedging import hedge, hedge_due
from trainmover.controller.standby.warming import attest_again, try_cold_again
from trainmover.controller.standstill.lateness import late_leavers, late_ranks, looks_due
from trainmover.controller.state import Job

TICK_US = 60_000_000


def tick_due(job: Job, last_us: int, now_us: int) -> bool:
    """Whether the host is to say `Tick` now. last_us: when it last did."""
    if job.change is not None and job.change.missing and now_us >= job.change.until_us:
        return True
    if job.stopping is not None and now_us >= job.stopping.until_us:
        return True
    late = late_ranks(job, now_us) or late_leavers(job, now_us)
    if looks_due(job, last_us, now_us) or (late and job.spec.watch) or hedge_due(job, now_us):
        return True
    if retry_due(job, now_us) or writer_due(job, now_us) or capacity_due(job, now_us):
        return True
    return len(job.machines) > len(job.seats) and now_us - last_us >= TICK_US


def tick(job: Job, at_us: int) -> Decision:
    """Time has passed."""
    job = let_retry(hedge(job, at_us), at_us)
    change = job.change
    if change is None or not change.missing or at_us < change.until_us:
        return try_cold_again(attest_again(job, at_us), at_us)
    cause = incident(job, change.incident).cause
    return nobody_left(job, cause, len(change.missing), at_us, waited_s=job.spec.wait_s)
