# SPDX-License-Identifier: Apache-2.0
"""Ranks in a sentence. Pure."""

from collections.abc import Sequence

from trainmover.ids import Rank


def ranks_text(ranks: Sequence[Rank]) -> str:
    """Consecutive ranks, shortest: 3, 4-7, or - for none.

    >>> ranks_text([Rank(4), Rank(5)]), ranks_text([])
    ('4-5', '-')
    """
    if not ranks:
        return "-"
    if len(ranks) > 1 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(str(rank) for rank in ranks)


def ranks_named(ranks: Sequence[Rank]) -> str:
    """The same with the noun before it."""
    return f"rank{'s' * (len(ranks) != 1)} {ranks_text(ranks)}"
