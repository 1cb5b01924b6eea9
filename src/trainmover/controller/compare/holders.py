# SPDX-License-Identifier: Apache-2.0
"""Who holds which tensors: a partition of the ranks for each path that a round only refines. Pure.

Ranks that have had equal hashes of a tensor in every round are its holders. Once they differ they
are none of each other any more, even if they should be equal again: ranks that train apart and
average now and then would be taken for replicas otherwise.
"""

from collections import Counter
from collections.abc import Mapping

from trainmover.controller.compare.known import Entry, Held, Told, Votes
from trainmover.ids import Rank

NOTHING = Held({}, frozenset())


def _teams(
    before: Mapping[Rank, Held], now: dict[Rank, Told]
) -> list[tuple[list[Rank], Held, Told]]:
    """Ranks that have held the same and have told the same, lowest first: most need one look."""
    teams: dict[tuple[int, int], tuple[list[Rank], Held, Told]] = {}
    for rank, told in sorted(now.items()):
        held = before.get(rank, NOTHING)
        teams.setdefault((id(held), id(told)), ([], held, told))[0].append(rank)
    return list(teams.values())


def watched(before: Mapping[Rank, Held], told: dict[Rank, Told]) -> dict[Rank, Told]:
    """What was told, without that of which a rank is the only holder."""
    teams = _teams(before, told)
    seen = Counter(hash_ for _, _, its in teams for hash_ in its.values())
    shared: dict[Rank, Told] = {}
    for ranks, held, its in teams:
        not_alone = {
            path: hash_
            for path, hash_ in its.items()
            if path not in held.alone
            and (len(ranks) > 1 or seen[hash_] > 1 or path in held.entries)
        }
        shared |= dict.fromkeys(ranks, not_alone)
    return shared


def votes(before: Mapping[Rank, Held], now: dict[Rank, Told]) -> Votes:
    """What the ranks of `now` hold of each tensor, beside those who have held the same."""
    found: Votes = {}
    for ranks, held, told in _teams(before, now):
        for path, hash_ in told.items():
            key = (path, held.entries.get(path))
            found.setdefault(key, {}).setdefault(hash_, []).extend(ranks)
    return found


def refined(
    before: Mapping[Rank, Held], told: dict[Rank, Told], ought: dict[Rank, Told]
) -> dict[Rank, Held]:
    """Who has held the same, and holds the same now, goes on as holders of it."""
    teams = _teams(before, ought)
    holders: dict[tuple[str, Entry | None, int], list[Rank]] = {}
    for ranks, held, its in teams:
        for path, hash_ in its.items():
            holders.setdefault((path, held.entries.get(path), hash_), []).extend(ranks)
    new: dict[Rank, Held] = {}
    for ranks, held, its in teams:
        entries, alone = dict(held.entries), told[ranks[0]].keys() - its.keys() - held.alone
        for path, hash_ in its.items():
            old = entries.pop(path, None)
            kin = holders[path, old, hash_]
            if len(kin) > 1:
                entries[path] = Entry(kin[0], hash_, _moved(old, hash_))
            else:
                alone.add(path)
        its_own = held.alone | alone if alone else held.alone
        new |= dict.fromkeys(ranks, Held(entries, its_own))
    return new


def _moved(entry: Entry | None, hash_: int) -> bool:
    return entry is not None and (entry.moved or entry.hash != hash_)


def families(held: dict[Rank, Held], now: dict[Rank, Told]) -> dict[Rank, Rank]:
    """Rank -> lowest of those that hold the same tensors, all of them."""
    found: dict[Rank, Rank] = {}
    lowest: dict[tuple[object, ...], Rank] = {}
    for ranks, its, told in _teams(held, now):
        if its.alone:
            found |= {rank: rank for rank in ranks}
            continue
        key = (tuple(sorted(told)), tuple(sorted(its.entries.items())))
        found |= dict.fromkeys(ranks, lowest.setdefault(key, ranks[0]))
    return found
