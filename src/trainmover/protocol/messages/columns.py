# SPDX-License-Identifier: Apache-2.0
"""Committed steps of many ranks, column by column. Pure.

Ranks that pass a gate together report the same names for the same steps. Said row by row, each
number would have its own name beside it, and the controller would take each row into its hands
several times; as columns, the numbers of all ranks of a machine are one string of bytes from its
agent to the journal.
"""

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import msgspec

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages.worker_facts import Committed, Draw, Row, Took

Values = tuple[tuple[str, ...], bytes]
"""Names in order, and their values as doubles: equal if and only if the bits are, but for the
payload of a NaN."""
_Part = tuple[Committed, list[Row], bool]
"""What a rank has told, those of its rows that go into the same columns, and whether they are its
first."""
_DOUBLE_BYTES = 8


class Columns(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Rows of ranks that are alike: of the same steps of one epoch, with the same names.

    ranks    n of them
    steps    k of them, one after the other in the order in which they were committed
    at_us    n * k: of the first rank all its steps, then of the next
    names    what each row reports, in order of the alphabet
    values   of each row, in the order of at_us, its numbers: float64, little endian
    samples  n * k, as in `Row`; [] if no row has any
    took     n, as in `Committed`; [] if no rank has any
    first    whether the first step is the first commit of `epoch`
    """

    ranks: list[Rank]
    epoch: Epoch
    steps: list[Step]
    at_us: list[int]
    names: tuple[str, ...]
    values: bytes
    samples: list[list[Draw]] = []
    took: list[list[Took]] = []
    first: bool = False

    @property
    def fit(self) -> bool:
        """Whether the columns are as long as they are to be, and the names in order."""
        n, rows = len(self.ranks), len(self.ranks) * len(self.steps)
        return (
            n > 0
            and rows > 0
            and len(self.at_us) == rows
            and len(self.values) == rows * len(self.names) * _DOUBLE_BYTES
            and len(self.samples) in (0, rows)
            and len(self.took) in (0, n)
            and list(self.names) == sorted(set(self.names))
        )

    @property
    def finite(self) -> bool:
        """Whether no number is NaN or infinite."""
        return all(map(math.isfinite, _numbers(self.values)))

    def each(self) -> Iterator[tuple[Rank, list[Row]]]:
        """Of each rank its rows, as it has told them."""
        for index, rank in enumerate(self.ranks):
            first = index * len(self.steps)
            yield rank, [self._row(first + at, step) for at, step in enumerate(self.steps)]

    def each_took(self) -> Iterator[tuple[Rank, Took]]:
        """What each rank has taken for steps."""
        for rank, its in zip(self.ranks, self.took, strict=bool(self.took)):
            yield from ((rank, took) for took in its)

    def _row(self, row: int, step: Step) -> Row:
        values = named((self.names, self.values_of(row)))
        samples = self.samples[row] if self.samples else []
        return Row(step=step, at_us=self.at_us[row], values=values, samples=samples)

    def values_of(self, row: int) -> bytes:
        """Of one of n * k."""
        size = len(self.names) * _DOUBLE_BYTES
        return self.values[row * size : (row + 1) * size]


def columns_of(told: Iterable[Committed]) -> list[Columns]:
    """All that was told, of each rank in the order in which it was.

    >>> rows = [Row(step=Step(4), at_us=7, values={"loss": 0.5})]
    >>> facts = [Committed(rank=Rank(rank), epoch=Epoch(1), rows=rows) for rank in (0, 1)]
    >>> [alike] = columns_of(facts)
    >>> alike.ranks, alike.steps, alike.at_us, dict(alike.each())[Rank(1)] == rows
    ([0, 1], [4], [7, 7], True)
    """
    alike: list[list[_Part]] = []
    newest: dict[object, int] = {}
    """Where the last of a kind is."""
    of_rank: dict[Rank, int] = {}
    for fact in told:
        is_first = True
        for names, some in groupby(fact.rows, key=_names):
            rows = list(some)
            kind = (fact.epoch, names, fact.first and is_first, tuple(row.step for row in rows))
            at = newest.get(kind, -1)
            if at <= of_rank.get(fact.rank, -1):  # Nothing goes before what the rank said earlier.
                at = newest[kind] = len(alike)
                alike.append([])
            alike[at].append((fact, rows, is_first))
            of_rank[fact.rank], is_first = at, False
    return [_columns(parts) for parts in alike]


def _columns(parts: list[_Part]) -> Columns:
    fact, rows, is_first = parts[0]
    every = [row for _, some, _ in parts for row in some]
    took = [one.took if begins else [] for one, _, begins in parts]
    return Columns(
        ranks=[one.rank for one, _, _ in parts],
        epoch=fact.epoch,
        steps=[row.step for row in rows],
        at_us=[row.at_us for row in every],
        names=_names(rows[0]),
        values=b"".join([plain(row.values)[1] for row in every]),
        samples=[row.samples for row in every] if any(row.samples for row in every) else [],
        took=took if any(took) else [],
        first=fact.first and is_first,
    )


def _names(row: Row) -> tuple[str, ...]:
    return tuple(sorted(row.values))


def plain(values: Mapping[str, float]) -> Values:
    """As they are compared and kept.

    >>> plain({"a": math.nan}) == plain({"a": -math.nan}), plain({"a": 0.0}) == plain({"a": -0.0})
    (True, False)
    """
    names = tuple(sorted(values))
    numbers = [math.nan if values[name] != values[name] else values[name] for name in names]
    return names, struct.pack(f"<{len(names)}d", *numbers)


def named(values: Values) -> dict[str, float]:
    """As they were reported."""
    names, data = values
    return dict(zip(names, _numbers(data), strict=True))


def _numbers(doubles: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(doubles) // _DOUBLE_BYTES}d", doubles)
