# SPDX-License-Identifier: Apache-2.0
"""Who keeps the others waiting, from where they stand. Pure.

A rank that waits in a collective waits for those who have not begun it: they have begun fewer
collectives of that group. Whoever is behind and waits itself is not to blame, and neither is who
still moves, however slowly: nobody is suspected who has not said that it stands longer than its
own deadline, or whose process cannot say anything any more.
"""

from collections.abc import Collection, Mapping

from trainmover.ids import Rank
from trainmover.protocol.messages import Stands

OWN_BUSINESS = ("script", "fetch")
"""Where a rank that stands does not wait for others."""


def suspects(
    stands: Mapping[Rank, Stands],
    silent: Collection[Rank],
    *,
    ranks: int,
    waiting: Collection[Rank] = (),
) -> list[Rank]:
    """Ranks to blame; none if nobody waits, or if those would be more than half of all: then it is
    something that most of them do, and the few others are early.

    silent   whose process executes nothing
    waiting  ranks that wait for all others, besides those that stand and say so
    ranks    that take part
    """
    wait = {rank: one for rank, one in stands.items() if one.where not in OWN_BUSINESS}
    busy = {rank: one for rank, one in stands.items() if one.where in OWN_BUSINESS}
    found = {rank for rank, one in busy.items() if any(_ahead(w, one) for w in wait.values())}
    if wait or waiting:
        found |= set(silent)
    if not found and len({*stands, *waiting}) >= ranks:
        found = set(busy)  # Messages are not counted: all but these wait.
    return sorted(found) if 2 * len(found) <= ranks else []


def circle(stands: Mapping[Rank, Stands]) -> list[Rank]:
    """Ranks of which each waits for the next one, and the last for the first; none if there are no
    such. None of them can ever go on: each waits in a collective that the next has not begun, and
    stands in another one. It is found in one walk, by asking of each group for whom it waits
    longest; where that rank only waits for a slow network a circle may be found later.
    """
    behind: dict[str, Rank] = {}
    for rank, one in sorted(stands.items()):
        for group, count in one.counts.items():
            if group not in behind or count < stands[behind[group]].counts[group]:
                behind[group] = rank
    waits_for = {
        rank: behind[one.group]
        for rank, one in stands.items()
        if one.group in one.counts
        and one.counts[one.group] > stands[behind[one.group]].counts[one.group]
    }
    seen: set[Rank] = set()
    for first in sorted(waits_for):
        path: list[Rank] = []
        other: Rank | None = first
        while other is not None and other not in seen:
            seen.add(other)
            path.append(other)
            other = waits_for.get(other)
        if other in path:
            return path[path.index(other) :]
    return []


def nobody_is_missing(stands: Mapping[Rank, Stands], ranks: int) -> bool:
    """Whether all wait for each other, and nobody for anything else."""
    return len(stands) >= ranks and all(one.where not in OWN_BUSINESS for one in stands.values())


def _ahead(waiting: Stands, other: Stands) -> bool:
    """Whether `waiting` is in a collective that `other`, who takes part, has not begun."""
    shared = waiting.counts.keys() & other.counts.keys()
    return any(waiting.counts[group] > other.counts[group] for group in shared)
