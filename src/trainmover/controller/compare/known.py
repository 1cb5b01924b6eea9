# SPDX-License-Identifier: Apache-2.0
"""What rounds have told: values. Pure.

Each tensor that ranks hold, by path, with its hash: who holds it alike (`holders`), where holders
have parted (`parting`), and what the rounds so far come to (`comparison`).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol.messages import Fingerprinted


class Entry(NamedTuple):
    """One tensor of one rank.

    kin    lowest of its holders
    moved  whether it has changed since the first round that saw it
    """

    kin: Rank
    hash: int
    moved: bool


class Held(NamedTuple):
    """One section of a rank's state; also what it held in an earlier round and not in the newest.
    Ranks that hold the same share one such value, which nobody changes.

    entries  what has other holders, by path
    alone    paths of what has none, and never will: in a sharded job most
    """

    entries: dict[str, Entry]
    alone: frozenset[str]


Told = dict[str, int]
"""By path, the hashes of one section of one rank in this round. Shared by ranks, as `Held` is."""

Votes = dict[tuple[str, Entry | None], dict[int, list[Rank]]]
"""Each tensor, of those who have held the same until now (None: of those who have not held it): its
hashes now, and who has which."""

SHARED, BUFFERS, SMALL = range(3)
"""Sections of a rank's state, as `Fingerprinted` has them."""


class Parted(StrEnum):
    """What it looks like when replicas part."""

    CORRUPTION = "corruption"  # a minority differs, in a few of the tensors that all change alike
    TAKEOVER = "takeover"  # since one of them was taken over: the script has state of its own
    APART = "apart"  # the script trains them apart, or it is not known


@dataclass(frozen=True)
class Divergence:
    """Replicas have parted.

    step      of the round that saw it
    since     step of the round before, in which they were equal
    holders   of the tensors until then
    diverged    those that differ from the majority; () if there is none
    paths     for each section: what differs
    machines  of those that diverged, or of all holders, when it was seen
    joined    ranks among them that another process has taken since they were equal
    """

    step: Step
    since: Step
    holders: tuple[Rank, ...]
    diverged: tuple[Rank, ...]
    paths: tuple[tuple[str, ...], ...]
    machines: tuple[MachineId, ...] = ()
    kind: Parted = Parted.CORRUPTION
    joined: tuple[Rank, ...] = ()

    @property
    def shared(self) -> bool:
        """Whether parameters or optimizer state differ."""
        return bool(self.paths[SHARED])


@dataclass(frozen=True)
class Layout:
    """Paths, and how many of them belong to each section."""

    paths: tuple[str, ...]
    sections: tuple[int, ...]

    def section(self, which: int) -> tuple[str, ...]:
        """The paths of one section."""
        start = sum(self.sections[:which])
        return self.paths[start : start + self.sections[which]]


@dataclass(frozen=True)
class Doubt:
    """A rank had diverged: what was kept of its state after the step `since`, and up to `until`,
    may be corrupted. until: None: it still differs."""

    rank: Rank
    since: Step
    until: Step | None = None


@dataclass(frozen=True)
class Comparison:
    """What rounds have told.

    said      facts of the round that is not complete yet
    step      of the newest complete round; 0: there was none
    read      bytes of tensors the largest rank hashed in it; took_us: the slowest
    held      for each section: rank -> what it holds
    families  rank -> lowest of the ranks whose whole shared state is equal to its own
    doubts    of all ranks that ever diverged, oldest first
    apart     ranks that parted from their replicas between two rounds, as was seen when one was to
              be taken over: nobody's source from then on -> step of the last round before
    joined    rank -> after which step another process took it last
    """

    layouts: dict[str, Layout] = field(default_factory=dict)
    said: dict[Rank, Fingerprinted] = field(default_factory=dict)
    step: Step = Step(0)
    read: int = 0
    took_us: int = 0
    held: tuple[dict[Rank, Held], ...] = ({}, {}, {})
    families: dict[Rank, Rank] = field(default_factory=dict)
    diverged: frozenset[Rank] = frozenset()
    doubts: tuple[Doubt, ...] = ()
    apart: dict[Rank, Step] = field(default_factory=dict)
    joined: dict[Rank, Step] = field(default_factory=dict)
    divergences: tuple[Divergence, ...] = ()
