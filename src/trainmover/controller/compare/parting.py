# SPDX-License-Identifier: Apache-2.0
"""When holders part: what is an alarm, and whom a vote finds diverged. Pure.

Parting is how silent corruption shows, but two tensors may also have been equal by chance: experts
that nobody has used yet, shards full of zeros. So it is an alarm only where holders were surely
replicas: they have changed that tensor to equal bytes before, or were equal in all shared state.
Small state (counters of the script's own) never is the alarm, but is named beside one. Where three
or more held a tensor and most still agree, the others *have diverged*: they are nobody's source,
later rounds say no more of them, and what they ought to hold is what the majority holds.

Scripts let ranks part on purpose, too: local SGD, an average of weights on one rank, a head of each
rank's own. That is corruption only as far as the evidence goes (`_kind`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainmover.controller.compare.known import (
    BUFFERS,
    SHARED,
    SMALL,
    Divergence,
    Entry,
    Held,
    Parted,
    Told,
    Votes,
)
from trainmover.ids import Rank, Step

VOTERS_MIN = 3


FEW = 3
"""A flipped bit stays in its tensor; in the state of an optimizer it goes on to the parameter."""


@dataclass
class _Found:
    """Of those who have parted in the same way. alike: the majority has changed all of it since."""

    paths: tuple[list[str], list[str], list[str]]
    alike: bool = True


def divergences(
    votes: list[Votes],
    families: dict[Rank, Rank],
    joined: Mapping[Rank, Step],
    *,
    step: Step,
    since: Step,
) -> list[Divergence]:
    """What the round at `step` has shown, one for those who have parted in the same way.

    joined: rank -> after which step another process took it
    """
    found: dict[tuple[tuple[Rank, ...], tuple[Rank, ...]], _Found] = {}
    for section, its in enumerate(votes):
        for path, before, parties in _parted(its, families):
            holders = tuple(sorted(rank for ranks in parties.values() for rank in ranks))
            key = (holders, _minority(parties))
            if section != SMALL or key in found:
                one = found.setdefault(key, _Found(([], [], [])))
                one.paths[section].append(path)
                one.alike &= max(parties, key=lambda hash_: len(parties[hash_])) != before
    return [
        _divergence(votes[SHARED], holders, minority, one, joined, step=step, since=since)
        for (holders, minority), one in found.items()
    ]


def _divergence(
    shared: Votes,
    holders: tuple[Rank, ...],
    minority: tuple[Rank, ...],
    found: _Found,
    joined: Mapping[Rank, Step],
    *,
    step: Step,
    since: Step,
) -> Divergence:
    paths = tuple(map(tuple, found.paths))
    new = tuple(r for r in minority or holders if r in joined and joined[r] >= since)
    kind = Parted.TAKEOVER if new else Parted.APART
    if minority and not new and _is_little(shared, holders, found):
        kind = Parted.CORRUPTION
    diverged = () if kind is Parted.APART else minority
    return Divergence(step, since, holders, diverged, paths, kind=kind, joined=new)


def _is_little(shared: Votes, holders: tuple[Rank, ...], found: _Found) -> bool:
    """Whether bits may have changed by themselves: in few tensors of those that are held alike, and
    in such as the others keep changing; of what nobody else changes, in one alone.

    Buffers that are changed are each rank's own (a running mean of its own batches), also where
    they came out equal before."""
    differ = len(found.paths[SHARED])
    count = differ + len(found.paths[BUFFERS])
    if not differ and found.alike:
        return False
    if count == 1:
        return True
    held = [parties for parties in shared.values() if _is_of(parties, holders)]
    return found.alike and count <= FEW and differ < len(held)


def _is_of(parties: dict[int, list[Rank]], holders: tuple[Rank, ...]) -> bool:
    return set(holders) <= {rank for ranks in parties.values() for rank in ranks}


def _parted(
    votes: Votes, families: dict[Rank, Rank]
) -> Iterator[tuple[str, int, dict[int, list[Rank]]]]:
    """Tensors whose holders have parted though they surely were replicas: with the hash before."""
    for (path, entry), parties in votes.items():
        if entry is None or len(parties) == 1:
            continue
        if entry.moved:
            yield path, entry.hash, parties
            continue
        by_family: dict[Rank, dict[int, list[Rank]]] = {}
        for hash_, ranks in parties.items():
            for rank in ranks:
                by_family.setdefault(families[rank], {}).setdefault(hash_, []).append(rank)
        yield from ((path, entry.hash, own) for own in by_family.values() if len(own) > 1)


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
    diverged: frozenset[Rank],
) -> dict[Rank, Told]:
    """What ranks hold; those that diverged, what they would if they had stayed with the others."""
    return told | {
        rank: {
            path: _majority(votes, families, diverged, rank, path, entries.get(path), own)
            for path, own in told[rank].items()
        }
        for rank in sorted(diverged)
        for entries in (before[rank].entries,)
    }


def _majority(
    votes: Votes,
    families: dict[Rank, Rank],
    diverged: frozenset[Rank],
    rank: Rank,
    path: str,
    entry: Entry | None,
    own: int,
) -> int:
    """Hash that most of those have who surely were replicas of `rank`; `own` if there are none."""
    counts = {
        hash_: sum(
            voter not in diverged
            and entry is not None
            and (entry.moved or families[voter] == families[rank])
            for voter in voters
        )
        for hash_, voters in votes.get((path, entry), {}).items()
    }
    best = max(counts, key=lambda hash_: counts[hash_], default=own)
    return best if counts.get(best) else own
