# SPDX-License-Identifier: Apache-2.0
"""Who holds what whom would lose: replicas of a rank's state, found and not declared. Pure.

Ranks are replicas if all their shared state had equal hashes in every round (`comparison`), or,
before there was one, if it had an equal digest when the first steps were recorded.
"""

from collections.abc import Iterable

from trainmover.controller.compare.comparison import apart, healed, took_over, with_fact
from trainmover.controller.compare.known import Divergence
from trainmover.controller.state import Job
from trainmover.controller.values import replace
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Certificate, Fingerprinted, Unproven


def fingerprinted(job: Job, fact: Fingerprinted) -> Job:
    """A rank has told its hashes."""
    world_size = job.spec.world_size
    comparison = with_fact(job.comparison, fact, epoch=job.epoch, world_size=world_size)
    known = len(job.comparison.divergences)
    new = (_placed(job, one) for one in comparison.divergences[known:])
    divergences = (*job.comparison.divergences, *new)
    return replace(job, comparison=replace(comparison, divergences=divergences))


def _placed(job: Job, divergence: Divergence) -> Divergence:
    slots = (rank // job.spec.nproc for rank in divergence.diverged or divergence.holders)
    return replace(divergence, machines=tuple(dict.fromkeys(job.seats[slot] for slot in slots)))


def taken_over(job: Job, certificate: Certificate) -> Job:
    """A joiner has the rank, with the state it took: of another rank, then it does not differ any
    more. Not before all go on: until then the leaver may keep the rank, with what it holds."""
    rank, step = certificate.rank, certificate.step
    comparison = took_over(job.comparison, rank, step)
    if certificate.source_rank != rank:
        comparison = healed(comparison, rank, step)
    return replace(job, comparison=comparison)


def not_believed(job: Job, fact: Unproven) -> Job:
    """Ranks that were replicas of the lost one in the last round are not any more.

    Of three holders or more the majority is believed, if nothing the lost rank has told stands
    against it; the others have a state of their own from now on. Else all have.
    """
    family = family_of(job, fact.rank)
    by_digest: dict[str, list[Rank]] = {}
    for rank, digest in sorted(fact.holders.items()):
        by_digest.setdefault(digest, []).append(rank)
    most = max(by_digest.values(), key=len, default=[])
    many = 2 * len(most) > len(fact.holders)
    if many and len(by_digest) > 1 and not set(most) & set(fact.unlike):
        family = [rank for rank in fact.holders if rank not in most]
    return replace(job, comparison=apart(job.comparison, family))


def family_of(job: Job, rank: Rank) -> list[Rank]:
    """The rank, and all that were said to hold what it holds."""
    return [rank, *(other for other in replicas(job, rank, job.recorded) if other != rank)]


def replicas(job: Job, rank: Rank, among: Iterable[Rank]) -> list[Rank]:
    """Those of `among` that hold the state of `rank`; if it has diverged, what it ought to be,
    also if they were seen to differ before a round has said who is right. Who has diverged itself
    holds nobody's.

    Which is the first depends on the rank, so that several joiners do not all begin with the same.
    """
    families, diverged = job.comparison.families, job.comparison.diverged
    parted = job.comparison.apart
    if rank in parted and rank not in diverged:
        return []
    if families:
        equal = [r for r in among if families[r] == families[rank] and r not in diverged]
    else:
        digest = job.recorded[rank].digest
        equal = [r for r in among if job.recorded[r].digest == digest]
    since = job.comparison.step if rank in diverged else Step(0)
    equal = [r for r in equal if r not in parted or parted[r] < since]
    first = rank % len(equal) if equal else 0
    return equal[first:] + equal[:first]
