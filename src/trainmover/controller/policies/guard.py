# SPDX-License-Identifier: Apache-2.0
"""A policy that raises is switched off, by name; the job goes on without it. Pure.

Policies only ever hold, cordon, move or tell: the job needs none of them. A replay raises the same
and so switches off the same.
"""

from collections.abc import Callable

from trainmover.controller.effects import Decision
from trainmover.controller.state import Job
from trainmover.controller.values import replace

TEXT_MAX = 300


def guarded(job: Job, policy: str, act: Callable[[], Decision]) -> Decision:
    """Return what the policy makes of the job; the job as it is if the policy raises, or has."""
    if policy in job.broken_policies:
        return job, ()
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - whatever a policy has wrong, it must not cost the job
        return broken(job, policy, error), ()


def broken(job: Job, policy: str, error: Exception) -> Job:
    """Return the job with this policy switched off."""
    return replace(job, broken_policies={**job.broken_policies, policy: describe(error)})


def describe(error: Exception) -> str:
    """Return what was raised, in one short line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:TEXT_MAX]


def broken_text(policy: str, why: str) -> str:
    """Say that a policy was switched off, what that means, and what to do."""
    return (
        f"the policy {policy} has raised {why}: it is switched off, and the job goes on without "
        "it. Please report this"
    )
