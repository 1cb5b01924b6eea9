# SPDX-License-Identifier: Apache-2.0
"""A job that is asked to stop first makes one more checkpoint, if that comes through in time. Pure.

StopRequested -> KeepSnapshots(now) to all   a cut at the next gate that all ranks pass
              -> cut, checkpoint             as ever; see `checkpoints`
              -> end                         once it is there, or cannot be, or the time is over
"""

from trainmover.controller.effects import Decision, Send, end
from trainmover.controller.events import StopRequested
from trainmover.controller.keep.checkpoints import cannot_be
from trainmover.controller.keep.last_checkpoint import end_stopped
from trainmover.controller.state import Job, Phase, Stopping
from trainmover.controller.values import replace
from trainmover.ids import Step
from trainmover.protocol.messages import KeepSnapshots


def stop(job: Job, event: StopRequested) -> Decision:
    """At once, if there is nothing to wait for, or somebody asks again."""
    if job.saves_last:
        return cannot_be(job, event.why), ()
    if not _can_save(job, event):
        return end(job, event.code, event.why)
    cut = job.cut.step if job.cut is not None else Step(0)
    after = max(cut, job.checkpointed)  # The cut may be lost, and an older one in its place.
    job = replace(job, stopping=Stopping(event.code, event.why, event.until_us, after))
    order = KeepSnapshots(every=job.snapshot_every, now=True)
    return job, tuple(Send(machine, order) for machine in job.seats)


def _can_save(job: Job, event: StopRequested) -> bool:
    trains = job.change is None and not job.finished
    in_time = job.stopping is None and event.until_us > event.at_us
    return in_time and trains and job.all_recorded and bool(job.spec.checkpoint)


def end_if_stopped(job: Job, at_us: int) -> Decision:
    """Once nothing more can come of waiting. A loss meanwhile is not recovered from: it may well be
    that everything is being stopped, machine by machine. Without one a broken link is."""
    stopping = job.stopping
    if stopping is None or job.phase is not Phase.RUNNING:
        return job, ()
    tried = job.checkpointed > stopping.after
    if not tried and not job.vacant() and at_us < stopping.until_us:
        return job, ()
    return end_stopped(job, stopping)
