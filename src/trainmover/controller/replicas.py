"""Who holds what whom would lose: replicas of a rank's state, found and not declared. Pure.

Ranks are replicas if all their shared state had equal hashes in every round (`comparison`), or,
before there was one, if it had an equal digest when the first steps were recorded.
"""

from collections.abc import Iterable, Mapping

from trainmover.controller.comparison import healed, with_fact
from trainmover.controller.parting import Divergence
from trainmover.controller.state import Job
from trainmover.controller.values import replace
from trainmover.ids import Rank
from trainmover.protocol.messages import Certificate, Fingerprinted


def fingerprinted(job: Job, fact: Fingerprinted) -> Job:
    """A rank has told its hashes."""
    world_size = job.spec.world_size
    comparison = with_fact(job.comparison, fact, epoch=job.epoch, world_size=world_size)
    known = len(job.comparison.divergences)
    new = (_placed(job, one) for one in comparison.divergences[known:])
    divergences = (*job.comparison.divergences, *new)
    return replace(job, comparison=replace(comparison, divergences=divergences))


def _placed(job: Job, divergence: Divergence) -> Divergence:
    slots = (rank // job.spec.nproc for rank in divergence.astray or divergence.holders)
    return replace(divergence, machines=tuple(dict.fromkeys(job.seats[slot] for slot in slots)))


def taken_over(job: Job, certificate: Certificate) -> Job:
    """A joiner has the rank, with the state it took: of another rank, then it is not astray any
    more. Not before all go on: until then the leaver may keep the rank, with what it holds."""
    if certificate.source_rank == certificate.rank:
        return job
    return replace(job, comparison=healed(job.comparison, certificate.rank, certificate.step))


def replicas(job: Job, rank: Rank, among: Iterable[Rank]) -> list[Rank]:
    """Those of `among` that hold the state of `rank`; of one that is astray, what it ought to be.
    Who is astray itself holds nobody's.

    Which is the first depends on the rank, so that several joiners do not all begin with the same.
    """
    families, astray = job.comparison.families, job.comparison.astray
    if families:
        equal = [r for r in among if families[r] == families[rank] and r not in astray]
    else:
        digest = job.recorded[rank].digest
        equal = [r for r in among if job.recorded[r].digest == digest]
    first = rank % len(equal) if equal else 0
    return equal[first:] + equal[:first]


def held_once(job: Job) -> list[Rank]:
    """Ranks whose state is on no other machine."""
    families, astray, nproc = job.comparison.families, job.comparison.astray, job.spec.nproc
    digests = {rank: fact.digest for rank, fact in job.recorded.items()}
    family: Mapping[Rank, Rank | str] = families or digests
    slots: dict[Rank | str, set[int]] = {}
    for rank, its in family.items():
        if rank not in astray:
            slots.setdefault(its, set()).add(rank // nproc)
    return [r for r, its in sorted(family.items()) if slots.get(its, set()) <= {r // nproc}]
