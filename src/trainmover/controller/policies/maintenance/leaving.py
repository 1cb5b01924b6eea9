# SPDX-License-Identifier: Apache-2.0
"""A machine that will soon be taken away by whoever owns it: its ranks go before. Pure.

Its agent says so, with the time that is left. (One that seems about to fail goes the same way, if
the policy on anomalies says so.) It takes no ranks any more, and those that it has are moved as
soon as a standby can take them and nothing else is under way; until it is gone, that is tried
again. Then it is a loss like any other. A machine of that name which joins later is another.
"""

from collections.abc import Iterator

from trainmover.controller.change.move import begin_moves
from trainmover.controller.change.seats import with_cordon, without_cordon
from trainmover.controller.effects import Decision
from trainmover.controller.policies.maintenance.lateness import may_be_late
from trainmover.controller.state import Cause, Cordon, Job, Trigger
from trainmover.ids import MachineId
from trainmover.protocol.messages import Leaving


def leaving(job: Job, machine: MachineId, fact: Leaving, at_us: int) -> Job:
    """Said again: the newer time counts. Its ranks go as soon as they can, if that is wanted."""
    if job.spec.notices != "act":
        return job
    until_us = at_us + 1000 * fact.left_ms
    known = job.cordoned.get(machine)
    reason = known.reason if known is not None else ""
    cordon = Cordon(at_us, reason or "it will be taken away", until_us)
    return with_cordon(job, machine, cordon)


def joined_again(job: Job, machine: MachineId) -> Job:
    """A machine of this name has joined: what was said of the one before is over with it."""
    known = job.cordoned.get(machine)
    if known is None or not (known.until_us or known.health):
        return job
    return without_cordon(job, machine)


def move_leaving(job: Job, at_us: int) -> Decision:
    """While no change is under way: begin to move all that are to go, or one that can."""
    names = [*_with_ranks(job)]
    for some in [names, *([name] for name in names)] if names else []:
        begun = begin_moves(job, some, _cause(job, some, at_us), request="", at_us=at_us)
        if not isinstance(begun, str):
            return begun
    return job, ()


def _cause(job: Job, names: list[MachineId], at_us: int) -> Cause:
    gone = [name for name in names if job.cordoned[name].until_us]
    causes = [_kept_out(job, name) for name in names if name not in gone]
    if gone:
        left_us = max(min(job.cordoned[name].until_us for name in gone) - at_us, 0)
        causes.insert(0, f"{', '.join(gone)} will be taken away, in {left_us / 1e6:.0f} s")
        if late := may_be_late(job, left_us):
            causes.append(late)
    return Cause(_trigger(job, names), "; ".join(causes))


def _kept_out(job: Job, name: MachineId) -> str:
    cordon = job.cordoned[name]
    if cordon.drained and not cordon.failing:
        return f"{name} is drained" + (f": {cordon.reason}" if cordon.reason else "")
    return f"{name} is {cordon.reason}"


def _trigger(job: Job, names: list[MachineId]) -> Trigger:
    if any(job.cordoned[name].until_us for name in names):
        return Trigger.NOTICE
    failing = any(job.cordoned[name].failing for name in names)
    return Trigger.FAILING if failing else Trigger.DRAIN


def _with_ranks(job: Job) -> Iterator[MachineId]:
    """Those that are to go, and still have ranks; the first to go is the first, and who may fail at
    any moment comes before all."""
    known = sorted(job.cordoned.items(), key=lambda item: item[1].until_us)
    for name, cordon in known:
        if (cordon.until_us or cordon.failing or cordon.drained) and name in job.seats:
            yield name
