# SPDX-License-Identifier: Apache-2.0
"""Replicas, and what to tell people when some of them differ. Pure."""

import itertools
from collections.abc import Sequence
from typing import Any

from trainmover.controller.compare.known import Divergence, Parted
from trainmover.controller.state import Job
from trainmover.ids import Rank
from trainmover.server.ranks import ranks_named

PATHS_NAMED = 3
_HIDDEN = "state of the script's own (a variable, a generator, a loader)"


def divergence_text(divergence: Divergence, job: Job) -> str:
    """Three lines: which ranks, which tensor, since when; what it means; what to do."""
    policy = job.spec.on_divergence
    return "\n".join((_happened(divergence), _means(divergence, job), _do(divergence, policy)))


def _happened(divergence: Divergence) -> str:
    step, bad = divergence.step, divergence.diverged
    others = [rank for rank in divergence.holders if rank not in bad]
    tensors = f"{_tensors(divergence)}; after step {divergence.since} they were equal."
    if not bad:
        return f"{ranks_named(others)} differ from each other after step {step} in {tensors}"
    where = ", ".join(divergence.machines)
    verb = "differ" if len(bad) > 1 else "differs"
    return (
        f"{ranks_named(bad)} ({where}) {verb} from {ranks_named(others)} "
        f"after step {step} in {tensors}"
    )


def _tensors(divergence: Divergence) -> str:
    paths = list(itertools.chain(*divergence.paths))
    more = f" and {len(paths) - PATHS_NAMED} more" if len(paths) > PATHS_NAMED else ""
    return ", ".join(paths[:PATHS_NAMED]) + more


def _means(divergence: Divergence, job: Job) -> str:
    first, last = divergence.since + 1, divergence.step
    match divergence.kind:
        case Parted.CORRUPTION:
            return (
                "Silent corruption, as it looks: bits of few tensors have changed by themselves; "
                f"or {_HIDDEN} differs there. "
                f"Steps {first} to {last} may have been trained with them, and stay."
            )
        case Parted.TAKEOVER:
            return (
                f"{ranks_named(divergence.joined)} went to another process in between: most likely "
                f"{_HIDDEN} did not go along. Steps {first} to {last} may have other numbers than "
                "an undisturbed run, and stay."
            )
        case Parted.APART:
            return (
                "No alarm if the script trains ranks apart, as in local SGD, or keeps an average "
                f"of weights on some: {_kept(job)}."
            )


def is_news(before: Job, new: Sequence[Divergence]) -> bool:
    """Whether to say it aloud. That a script trains ranks apart is said once."""
    told = any(one.kind is Parted.APART for one in before.comparison.divergences)
    return not told or any(one.kind is not Parted.APART for one in new)


def parted_text(before: Job, after: Job) -> str:
    """Ranks have parted between two rounds, as was seen when one of them was to be taken over."""
    known = before.comparison.apart
    new = {rank: step for rank, step in after.comparison.apart.items() if rank not in known}
    return (
        f"{ranks_named(sorted(new))} held the same after step {min(new.values())}, and do so no "
        f"more: nobody is taken for a copy of another there from now on ({_kept(after)}). That is "
        f"no alarm if the script trains ranks apart; if it does not, look for {_HIDDEN} that "
        "differs between ranks"
    )


def _kept(job: Job) -> str:
    if job.spec.snapshot_every == 0 or job.no_snapshots:
        return (
            "but no other rank has what each of these holds, and no snapshots are kept, so the "
            "loss of one ends the job or takes it back to a checkpoint"
        )
    return "snapshots keep each rank's own state from now on"


def _do(divergence: Divergence, policy: str) -> str:
    if divergence.kind is Parted.APART:
        return (
            f"If it does not, look for {_HIDDEN} that differs between ranks, then at the memory of "
            f"{', '.join(divergence.machines)}."
        )
    if divergence.kind is Parted.TAKEOVER:
        return (
            "Track what the script keeps for itself (job.track), and for clean numbers start again "
            f"from a checkpoint of step {divergence.since} or before."
        )
    clean = f"for clean numbers start again from a checkpoint of step {divergence.since} or before"
    machines = divergence.machines
    if not divergence.diverged or not divergence.shared:
        which = "the machine" if len(machines) == 1 else "one of the machines"
        return f"Look at the memory of {', '.join(machines)}: {which} cannot be trusted; {clean}."
    if policy == "replace":
        return f"A standby takes its place once it is warm, with the state of the others; {clean}."
    moves = ", ".join(f"trainmover move {machine}" for machine in machines)
    return f"Let a standby take its place, with the state of the others ({moves}); {clean}."


def replicas_json(job: Job) -> dict[str, Any]:
    """Newest complete round, and who holds whose state; `step` 0: there was no round yet."""
    comparison = job.comparison
    ranks_of: dict[Rank, list[Rank]] = {}
    for rank, first in sorted(comparison.families.items()):
        ranks_of.setdefault(first, []).append(rank)
    return {
        "step": comparison.step,
        "families": list(ranks_of.values()),
        "diverged": sorted(comparison.diverged),
        "bytes": comparison.read,
        "cost_ms": comparison.took_us / 1000.0,
    }


def divergences_json(job: Job) -> list[dict[str, Any]]:
    """All that were seen, oldest first."""
    return [
        {
            "step": divergence.step,
            "since": divergence.since,
            "holders": list(divergence.holders),
            "diverged": list(divergence.diverged),
            "kind": str(divergence.kind),
            "paths": list(itertools.chain(*divergence.paths)),
            "text": divergence_text(divergence, job),
        }
        for divergence in job.comparison.divergences
    ]
