# SPDX-License-Identifier: Apache-2.0
"""What very many say one after the other: one more costs the same, however many have. Pure.

A value is never changed, so each fact makes another one. A copy of all facts at each of them would
make the whole quadratic: at 16,384 machines minutes of a core for one recovery.

    Facts   whom -> what: a large dict that many values share, and a small one of what is newer,
            which alone is copied; now and then the small one goes into a new large one
    Ranks   who has said something: a bit each, so a copy is one of two kilobytes at most
"""

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Set, ValuesView
from typing import Any, TypeVar

from trainmover.ids import Rank

K = TypeVar("K")
V = TypeVar("V")
NEWER_MAX = 64
"""Entries of the small dict, beside a share of the large one that its copy is cheap against."""


class Facts(Mapping[K, V]):
    """As a dict: in the order in which keys first came.

    >>> some = Facts({"a": 1})
    >>> more = some.having("b", 2).having("a", 3)
    >>> dict(some), dict(more), len(more), more == {"a": 3, "b": 2}
    ({'a': 1}, {'a': 3, 'b': 2}, 2, True)
    """

    __slots__ = ("_large", "_length", "_newer")

    def __init__(self, known: Mapping[K, V] | None = None) -> None:
        self._large: dict[K, V] = dict(known or ())
        self._newer: dict[K, V] = {}
        self._length = len(self._large)

    def having(self, key: K, value: V) -> "Facts[K, V]":
        """With one more, or another value of one that is known."""
        new = object.__new__(type(self))
        new._length = self._length + (key not in self)
        newer = {**self._newer, key: value}
        if len(newer) > NEWER_MAX and len(newer) ** 2 > len(self._large):
            new._large, new._newer = {**self._large, **newer}, {}
        else:
            new._large, new._newer = self._large, newer
        return new

    def without(self, keys: "Set[K] | frozenset[K]") -> "Facts[K, V]":
        """Of the others. It costs as much as there are."""
        return type(self)({key: value for key, value in self.items() if key not in keys})

    def _whole(self) -> dict[K, V]:
        """All in one; who looks at all need not look twice."""
        if self._newer:
            self._large, self._newer = {**self._large, **self._newer}, {}
        return self._large

    def __getitem__(self, key: K) -> V:
        newer = self._newer
        return newer[key] if key in newer else self._large[key]

    def __contains__(self, key: object) -> bool:
        return key in self._newer or key in self._large

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        return iter(self._whole())

    def keys(self) -> KeysView[K]:
        return self._whole().keys()

    def values(self) -> ValuesView[V]:
        return self._whole().values()

    def items(self) -> ItemsView[K, V]:
        return self._whole().items()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return self is other or self._whole() == dict(other.items())

    def __hash__(self) -> int:
        raise TypeError("facts are no key")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._whole()!r})"


class Ranks(Set[Rank]):
    """As a frozenset of ranks.

    >>> some = Ranks([1, 70])
    >>> some.having(3), 70 in some, 2 in some, len(some), some == {70, 1}
    (Ranks([1, 3, 70]), True, False, 2, True)
    """

    __slots__ = ("bits",)

    def __init__(self, ranks: Iterable[Any] = (), *, bits: int = 0) -> None:
        self.bits = bits
        for rank in ranks:
            self.bits |= 1 << rank

    def having(self, rank: int) -> "Ranks":
        """With one more."""
        return Ranks(bits=self.bits | 1 << rank)

    def union(self, others: Iterable[Any]) -> "Ranks":
        """With those of another set, quickly if that is one of these."""
        more = others if isinstance(others, Ranks) else Ranks(others)
        return Ranks(bits=self.bits | more.bits)

    def without(self, others: Iterable[Any]) -> "Ranks":
        """Those that are not in another set."""
        return Ranks(bits=self.bits & ~Ranks(others).bits)

    def __contains__(self, rank: object) -> bool:
        return isinstance(rank, int) and rank >= 0 and bool(self.bits >> rank & 1)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __iter__(self) -> Iterator[Rank]:
        digits = bin(self.bits)[:1:-1]
        at = digits.find("1")
        while at >= 0:
            yield Rank(at)
            at = digits.find("1", at + 1)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Ranks):
            return self.bits == other.bits
        return isinstance(other, Set) and set(self) == set(other)

    def __hash__(self) -> int:
        return self._hash()

    def __repr__(self) -> str:
        return f"Ranks({list(self)})"
