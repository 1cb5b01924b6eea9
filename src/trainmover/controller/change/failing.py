# SPDX-License-Identifier: Apache-2.0
"""No endless loop: a step that fails again and again ends the job, with the evidence. Pure.

A step is tried once in every epoch that comes into force. What fails while members change belongs
to the same failure and counts once. Going back to an older step does not begin the count anew. A
machine that is lost says nothing of the step: however many are, a standby takes the place of each.
"""

from trainmover.controller.change.incidents import amend, incident, lately
from trainmover.controller.state import Incident, Job
from trainmover.ids import Step

FAILURES_MAX = 3
FRAMES_SHOWN = 6


def note_failed(job: Job, last: Step) -> Job:
    """The incident under way interrupted the step after `last`.

    If it began while another was being mended, it is the step of that one.
    """
    assert job.change is not None
    same = [i.failed for i in lately(job) if i.failed is not None and i.failed[1] == job.epoch]
    failed = same[0] if same else (Step(last + 1), job.epoch)
    return amend(job, job.change.incident, failed=failed)


def fails_for_ever(job: Job) -> str:
    """Why the job is to end, if its step has failed too often; else ""."""
    assert job.change is not None
    failed = incident(job, job.change.incident).failed
    assert failed is not None, "see `note_failed`"
    step = failed[0]
    tries = {
        i.failed[1]: i
        for i in lately(job)
        if i.failed is not None and i.failed[0] == step and not i.lost
    }
    if len(tries) < FAILURES_MAX:
        return ""
    first = next(iter(tries.values()))
    evidence = "\n".join(f"  {_described(one, first)}" for one in tries.values())
    return (
        f"Step {step} has failed {len(tries)} times:\n{evidence}\n"
        "The job has ended: it would fail there again.\n"
        f"Look at what step {step} does, at its data, and at the workers' logs."
    )


def _described(one: Incident, first: Incident) -> str:
    later_s = (one.marks["detect"] - first.marks["detect"]) / 1e6
    when = "first" if one is first else f"{later_s:.1f} s later"
    where = f" on {one.machine}" if one.machine is not None else ""
    stacks = "".join(f"\n{_innermost(stack)}" for stack in one.stacks.values())
    return f"incident {one.number}, {when}{where}: {one.cause}{stacks}"


def _innermost(stack: str) -> str:
    """Return the innermost frame of the main thread, which comes last."""
    frames = stack.rpartition("Thread 0x")[2].splitlines()[1:] if "Thread 0x" in stack else []
    shown = frames[:FRAMES_SHOWN] or stack.splitlines()[:1]
    return "\n".join(f"    {line.strip()}" for line in shown)
