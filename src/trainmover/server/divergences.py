"""Replicas, and what to tell people when some of them differ. Pure."""

import itertools
from typing import Any

from trainmover.controller.parting import Divergence
from trainmover.controller.state import Job
from trainmover.ids import Rank
from trainmover.server.ranks import ranks_named

PATHS_NAMED = 3


def divergence_text(divergence: Divergence, job: Job) -> str:
    """Three lines: which ranks, which tensor, since when; what it means; what to do."""
    policy = job.spec.on_divergence
    return "\n".join((_happened(divergence), _means(divergence), _do(divergence, policy)))


def _happened(divergence: Divergence) -> str:
    step, bad = divergence.step, divergence.astray
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


def _means(divergence: Divergence) -> str:
    first, last = divergence.since + 1, divergence.step
    return (
        "Silent corruption: bits have changed by themselves, unless the script changes them on "
        f"some ranks alone. Steps {first} to {last} may have been trained with them, and stay."
    )


def _do(divergence: Divergence, policy: str) -> str:
    clean = f"for clean numbers start again from a checkpoint of step {divergence.since} or before"
    machines = divergence.machines
    if not divergence.astray or not divergence.shared:
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
        "astray": sorted(comparison.astray),
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
            "astray": list(divergence.astray),
            "paths": list(itertools.chain(*divergence.paths)),
            "text": divergence_text(divergence, job),
        }
        for divergence in job.comparison.divergences
    ]
