"""When holders part: what is an alarm, and whom a vote finds astray. Pure.

Parting is how silent corruption shows, but two tensors may also have been equal by chance: experts
that nobody has used yet, shards full of zeros. So it is an alarm only where holders were surely
replicas: they have changed that tensor to equal bytes before, or were equal in all shared state.
Small state (counters of the script's own) never is the alarm, but is named beside one. Where three
or more held a tensor and most still agree, the others are *astray*: they are nobody's source, later
rounds say no more of them, and what they ought to hold is what the majority holds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainmover.controller.holders import Entry, Held, Told, Votes
from trainmover.ids import MachineId, Rank, Step

SHARED, BUFFERS, SMALL = range(3)
"""Sections of a rank's state, as `Fingerprinted` has them."""
VOTERS_MIN = 3


@dataclass(frozen=True)
class Divergence:
    """Replicas have parted.

    step      of the round that saw it
    since     step of the round before, in which they were equal
    holders   of the tensors until then
    astray    those that differ from the majority; () if there is none
    paths     for each section: what differs
    machines  of those astray, or of all holders, when it was seen
    """

    step: Step
    since: Step
    holders: tuple[Rank, ...]
    astray: tuple[Rank, ...]
    paths: tuple[tuple[str, ...], ...]
    machines: tuple[MachineId, ...] = ()

    @property
    def shared(self) -> bool:
        """Whether parameters or optimizer state differ."""
        return bool(self.paths[SHARED])


def divergences(
    votes: list[Votes], families: dict[Rank, Rank], *, step: Step, since: Step
) -> list[Divergence]:
    """What the round at `step` has shown, one for those who have parted in the same way."""
    found: dict[tuple[tuple[Rank, ...], tuple[Rank, ...]], list[list[str]]] = {}
    for section, its in enumerate(votes):
        for path, parties in _parted(its, families):
            holders = tuple(sorted(rank for ranks in parties.values() for rank in ranks))
            key = (holders, _minority(parties))
            if section != SMALL or key in found:
                found.setdefault(key, [[], [], []])[section].append(path)
    return [
        Divergence(step, since, holders, astray, tuple(map(tuple, paths)))
        for (holders, astray), paths in found.items()
    ]


def _parted(
    votes: Votes, families: dict[Rank, Rank]
) -> Iterator[tuple[str, dict[int, list[Rank]]]]:
    """Tensors whose holders have parted though they surely were replicas."""
    for (path, entry), parties in votes.items():
        if entry is None or len(parties) == 1:
            continue
        if entry.moved:
            yield path, parties
            continue
        by_family: dict[Rank, dict[int, list[Rank]]] = {}
        for hash_, ranks in parties.items():
            for rank in ranks:
                by_family.setdefault(families[rank], {}).setdefault(hash_, []).append(rank)
        yield from ((path, own) for own in by_family.values() if len(own) > 1)


def _minority(parties: dict[int, list[Rank]]) -> tuple[Rank, ...]:
    """All but the majority; () if there is none, or too few to tell."""
    voters = sum(map(len, parties.values()))
    most = max(parties.values(), key=len)
    if voters < VOTERS_MIN or 2 * len(most) <= voters:
        return ()
    return tuple(sorted(rank for ranks in parties.values() if ranks is not most for rank in ranks))


def ought(
    before: Mapping[Rank, Held],
    told: dict[Rank, Told],
    votes: Votes,
    families: dict[Rank, Rank],
    astray: frozenset[Rank],
) -> dict[Rank, Told]:
    """What ranks hold; of those astray, what they would hold if they had stayed with the others."""
    return told | {
        rank: {
            path: _majority(votes, families, astray, rank, path, entries.get(path), own)
            for path, own in told[rank].items()
        }
        for rank in sorted(astray)
        for entries in (before[rank].entries,)
    }


def _majority(
    votes: Votes,
    families: dict[Rank, Rank],
    astray: frozenset[Rank],
    rank: Rank,
    path: str,
    entry: Entry | None,
    own: int,
) -> int:
    """Hash that most of those have who surely were replicas of `rank`; `own` if there are none."""
    counts = {
        hash_: sum(
            voter not in astray
            and entry is not None
            and (entry.moved or families[voter] == families[rank])
            for voter in voters
        )
        for hash_, voters in votes.get((path, entry), {}).items()
    }
    best = max(counts, key=lambda hash_: counts[hash_], default=own)
    return best if counts.get(best) else own
