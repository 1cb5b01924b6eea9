# SPDX-License-Identifier: Apache-2.0
"""Which rank stores which part of the record: nothing that another rank of its kind stores.

Two ranks of each kind store it whole, on different machines: what a joiner needs must be there
when any one machine is lost. All others store what is theirs alone, or nothing at all. Pure.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple


class Stores(Enum):
    """What a rank stores of its record."""

    WHOLE = "whole"
    SMALL = "small"  # what is its own; the rest is in the record of `Share.base`
    NOTHING = "nothing"  # the record of `Share.base` serves it


class Share(NamedTuple):
    """One rank's part. `base` is the rank itself where it stores all."""

    stores: Stores
    base: int


def share_of(rank: int, kinds: Sequence[bytes], owns: Sequence[bytes], nproc: int) -> Share:
    """By rank: what kind of record each has, and the hash of what is its own. See `Record`."""
    alike = [other for other, kind in enumerate(kinds) if kind == kinds[rank]]
    base = alike[0]
    elsewhere = next((other for other in alike if other // nproc != base // nproc), base)
    if rank in (base, elsewhere):
        return Share(Stores.WHOLE, rank)
    return Share(Stores.NOTHING if owns[rank] == owns[base] else Stores.SMALL, base)
