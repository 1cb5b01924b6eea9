# SPDX-License-Identifier: Apache-2.0
"""What follows when a rank has diverged: its machine is not trusted, and may be replaced. Pure.

With `on_divergence` `replace` its ranks are moved to a standby as soon as one is there. The move is
a planned one, but the joiner takes the state that the majority holds, never that of the leaver. No
machine is taken for what a script may have done itself (`parting.Parted`).
"""

from trainmover.controller.change.incidents import lately
from trainmover.controller.change.move import begin_move
from trainmover.controller.change.seats import with_machine
from trainmover.controller.compare.known import Divergence, Parted
from trainmover.controller.compare.replicas import fingerprinted, replicas
from trainmover.controller.effects import Decision
from trainmover.controller.state import Cause, Job, Trigger
from trainmover.ids import Rank
from trainmover.protocol.messages import Fingerprinted

TRIES_MAX = 3
"""Moves of one machine for one divergence: a standby may fail, but not for ever."""


def compared(job: Job, fact: Fingerprinted) -> Job:
    """Take a rank's hashes; what they show to be corrupted is not trusted again."""
    known = len(job.comparison.divergences)
    job = fingerprinted(job, fact)
    for divergence in job.comparison.divergences[known:]:
        there = (machine for machine in divergence.machines if machine in job.machines)
        for machine in there if _is_proof(divergence) else ():
            note = f"its memory is in doubt since step {divergence.step}"
            job = with_machine(job, machine, suspect=note)
    return job


def replace_diverged(job: Job, at_us: int) -> Decision:
    """While no change is under way: begin to move a rank that has diverged, if that is wanted and
    somebody can take its place."""
    if job.spec.on_divergence != "replace":
        return job, ()
    for rank in sorted(job.comparison.diverged):
        machine = job.seats[rank // job.spec.nproc]
        found = next((d for d in reversed(job.comparison.divergences) if rank in d.diverged), None)
        if found is None or not _is_proof(found):
            continue
        text = f"rank {rank} differs from its replicas since step {found.step}"
        tries = sum(incident.cause == text for incident in lately(job))
        if tries < TRIES_MAX and _can_be_mended(job, rank):
            cause = Cause(Trigger.CORRUPTION, text)
            begun = begin_move(job, machine, cause, request="", at_us=at_us)
            if not isinstance(begun, str):
                return begun
    return job, ()


def _can_be_mended(job: Job, rank: Rank) -> bool:
    """Whether some other machine has what the rank ought to hold."""
    nproc = job.spec.nproc
    elsewhere = [r for r in job.comparison.families if r // nproc != rank // nproc]
    return bool(replicas(job, rank, elsewhere))


def _is_proof(divergence: Divergence) -> bool:
    """Whether it speaks against the machine."""
    return bool(divergence.diverged) and divergence.kind is Parted.CORRUPTION
