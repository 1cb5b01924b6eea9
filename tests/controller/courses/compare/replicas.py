# SPDX-License-Identifier: Apache-2.0
"""Ranks in rounds, of which is known who holds what.

Ranks of a family hold the same: weights that change with each step and one that never does, a
buffer that changes and one that does not, a counter of the script's. Which ranks are said to have
parted, in which tensors, who of them is right and from whom others may take state follows from what
was changed in whose since the round before.
"""

import random
import struct
from dataclasses import dataclass, field

from trainmover.controller.compare.comparison import gone_back
from trainmover.controller.compare.known import Divergence, Parted
from trainmover.controller.compare.replicas import (
    fingerprinted,
    held_once,
    not_believed,
    replicas,
    taken_over,
)
from trainmover.controller.state import Job
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol.messages import Certificate, Fingerprinted, Unproven
from trainmover.simulator.happenings import Violation

MOVING = ("w0", "w1", "w2", "w3")
STILL = "frozen"
SECTIONS: tuple[tuple[str, ...], ...] = ((*MOVING, STILL), ("mean", "table"), ("count",))
CHANGES = {*MOVING, "mean", "count"}
EVERY = 10
FEW = 3
FLAW = 1 << 40


@dataclass
class Family:
    """together: of its ranks those that were never seen to part. over: some of them have, in some
    tensors, and hold the others alike for all that."""

    name: int
    together: list[Rank]
    over: bool = False


@dataclass
class Rounds:
    """flaws: rank and tensor -> what is wrong with it. diverged: those who are known to be wrong;
    since: of each the last round before, and the step at which it was mended, if it was."""

    chance: random.Random
    job: Job
    families: list[Family]
    step: int = 0
    flaws: dict[tuple[Rank, str], int] = field(default_factory=dict)
    diverged: set[Rank] = field(default_factory=set)
    since: dict[Rank, int] = field(default_factory=dict)
    mended: dict[Rank, int] = field(default_factory=dict)
    was: dict[Rank, dict[tuple[Rank, str], int]] = field(default_factory=dict)
    number: int = 0

    # --- what is so -----------------------------------------------------------------------------

    def family(self, rank: Rank) -> Family:
        return next(one for one in self.families if rank in self.members[one.name])

    @property
    def ranks(self) -> list[Rank]:
        return sorted(rank for ranks in self.members.values() for rank in ranks)

    def __post_init__(self) -> None:
        self.members = {one.name: [*one.together] for one in self.families}

    def _hash_of(self, rank: Rank, tensor: str) -> int:
        family = self.family(rank).name
        at = self.step if tensor in CHANGES else 0
        place = [name for section in SECTIONS for name in section].index(tensor)
        known = 1_000_003 * (family + 1) + 10_007 * place + at
        flaw = self.flaws.get((rank, tensor), 0)
        return known + FLAW * flaw

    def _told(self, rank: Rank, section: tuple[str, ...]) -> bytes:
        return struct.pack(f"<{len(section)}Q", *(self._hash_of(rank, one) for one in section))

    def spoil(self, rank: Rank, *tensors: str) -> None:
        for tensor in tensors:
            self.number += 1
            self.flaws[rank, tensor] = self.number

    # --- a round --------------------------------------------------------------------------------

    def facts(self) -> list[Fingerprinted]:
        """Of all ranks, in any order; the first of a family says what its tensors are."""
        said = []
        for one in self.families:
            ranks = self.members[one.name]
            shared = {rank: self._told(rank, SECTIONS[0]) for rank in ranks}
            for rank in ranks:
                like = next(other for other in ranks if shared[other] == shared[rank])
                said.append(
                    Fingerprinted(
                        rank=rank,
                        epoch=self.job.epoch,
                        step=Step(self.step),
                        layout=f"of {one.name}",
                        paths=[f"{one.name}.{n}" for s in SECTIONS for n in s]
                        if rank == ranks[0]
                        else None,
                        sections=[len(s) for s in SECTIONS] if rank == ranks[0] else [],
                        like=None if like == rank else like,
                        shared=shared[rank] if like == rank else b"",
                        rest=self._told(rank, SECTIONS[1]) + self._told(rank, SECTIONS[2]),
                        read=1000 + rank,
                        took_us=2000 - rank,
                    )
                )
        self.chance.shuffle(said)
        return said

    def round(self, *expected: tuple[object, ...]) -> None:
        """The next one shows this: holders, who has diverged, kind, paths, and who has joined."""
        before = self.job.comparison
        if self.chance.random() < 0.3:
            self._in_vain()
        self.step += EVERY
        for fact in self.facts():
            if self.chance.random() < 0.2:
                self._tell(_of_before(fact))
            self._tell(fact)
        now = self.job.comparison
        if (now.step, now.read, now.took_us) != (self.step, 1000 + self.ranks[-1], 2000):
            raise Violation(f"the round at {self.step} is over, and it was {now.step}")
        new = now.divergences[len(before.divergences) :]
        said = sorted((self._said(one) for one in new), key=repr)
        if said != sorted(expected, key=repr):
            raise Violation(f"the round at {self.step} shows {expected}, and it says {said}")
        for one in new:
            if (one.step, one.since) != (self.step, min(before.step, self.step)):
                raise Violation(f"{one}: the round before was {before.step}")
            if one.machines != tuple(MachineId(f"m{r}") for r in one.diverged or one.holders):
                raise Violation(f"{one} is of {one.machines}")
        self.is_known()

    def _in_vain(self) -> None:
        """One that is interrupted, or of which what is told is no whole number of hashes, or of
        other than three sections."""
        self.step += 1
        facts = self.facts()
        before = self.job.comparison.step
        match self.chance.randrange(4):
            case 0:
                facts.pop()
            case 1:
                facts[0] = _changed(facts[0], rest=facts[0].rest + b"12345678")
            case 2:
                facts[0] = _changed(facts[0], rest=facts[0].rest[:-1])
            case 3:
                at = next((i for i, fact in enumerate(facts) if fact.like is not None), 0)
                facts[at] = _in_odd_sections(facts[at], self.chance)
        for fact in facts:
            self._tell(fact)
        if self.job.comparison.step != before:
            raise Violation(f"the round at {self.step} is not whole, and counts")
        self.step += EVERY - self.step % EVERY

    def _tell(self, fact: Fingerprinted) -> None:
        self.job = fingerprinted(self.job, fact)

    def _said(self, one: Divergence) -> tuple[object, ...]:
        paths = tuple(tuple(path.partition(".")[2] for path in section) for section in one.paths)
        return one.holders, one.diverged, one.kind, paths, one.joined

    def is_known(self) -> None:
        """Who is wrong; and from whom each rank's state can be taken."""
        if self.job.comparison.diverged != self.diverged:
            raise Violation(f"{self.diverged} are wrong; known are {self.job.comparison.diverged}")
        for rank in self.ranks:
            family = self.family(rank)
            right = [r for r in family.together if r not in self.diverged]
            if rank not in family.together:
                right = [rank]
            found = replicas(self.job, rank, self.ranks)
            turned = rank % len(right) if right else 0
            if found != right[turned:] + right[:turned]:
                raise Violation(f"what {rank} holds is with {right}, and it is said {found}")
            alone = not {*right} - {rank}
            if (rank in held_once(self.job)) is not alone:
                raise Violation(f"what {rank} holds is with {right}; {held_once(self.job)}")

    # --- what happens ---------------------------------------------------------------------------

    def flips(self, rank: Rank, tensors: tuple[str, ...], *, joined: bool = False) -> None:
        """Of a rank that was right; and the round that shows it."""
        family, before = self.family(rank), self.step
        calm = dict(self.flaws)
        self.spoil(rank, *tensors)
        holders = tuple(family.together)
        shared, buffers, small = ([t for t in section if t in tensors] for section in SECTIONS)
        if len(holders) < 2 or not (shared or buffers):
            family.over = True
            self.round()
            return
        minority = (rank,) if len(holders) > 2 else ()
        alike = {*shared, *buffers} <= CHANGES
        count = len(shared) + len(buffers)
        little = count == 1 if not (shared and alike) else count == 1 or (
            count <= FEW and len(shared) < len(SECTIONS[0])
        )  # fmt: skip
        if not shared and alike:
            little = False
        kind = Parted.CORRUPTION if minority and little else Parted.APART
        new: tuple[Rank, ...] = ()
        if joined:
            kind, new = Parted.TAKEOVER, (rank,)
        wrong = () if kind is Parted.APART else minority
        family.over = not (shared and wrong)
        if shared and wrong:
            self.diverged.add(rank)
            self.since[rank], self.was[rank] = before, calm
            self.mended.pop(rank, None)
        elif shared:
            family.together = [r for r in holders if r != rank] if len(holders) > 2 else []
        paths = tuple(map(tuple, (shared, buffers, small)))
        self.round((holders, wrong, kind, paths, new))

    def takes_over(self, rank: Rank, source: Rank) -> None:
        """Another process has the rank now, with the state of that one."""
        certificate = Certificate(
            rank=rank, source_rank=source, step=Step(self.step), epoch=self.job.epoch,
            source_digest="", joiner_digest="", trace="", position="", bytes=1, state_ms=1.0,
        )  # fmt: skip
        self.job = taken_over(self.job, certificate)
        if source != rank:
            self.flaws = {at: flaw for at, flaw in self.flaws.items() if at[0] != rank}
            if rank in self.diverged:
                self.diverged.discard(rank)
                self.mended[rank] = self.step
        self.is_known()

    def all_go_back(self, step: int) -> None:
        """To what was kept after that one: who was wrong then is so again, and who was not is seen
        to be right in the next round."""
        right = {rank for rank in self.diverged if step <= self.since[rank]}
        for rank, until in [*self.mended.items()]:
            if step <= self.since[rank]:
                del self.mended[rank]
            elif step <= until:
                self.diverged.add(rank)
                self.number += 1
                self.flaws[rank, MOVING[0]] = self.number
        back = gone_back(self.job.comparison, Step(step))
        self.job = replace(self.job, comparison=back, epoch=Epoch(self.job.epoch + 1))
        self.is_known()
        self.diverged -= right
        self.flaws = {at: flaw for at, flaw in self.flaws.items() if at[0] not in right}

    def average(self) -> None:
        """Those who have parted come to hold the same, and part again: they are nothing to each
        other any more."""
        flaws = {at: flaw for at, flaw in self.flaws.items() if at[0] not in self.diverged}
        kept = dict(self.flaws)
        self.flaws = {at: flaw for at, flaw in kept.items() if at not in flaws}
        self.round()
        self.flaws = kept
        self.round()

    def differs(self, rank: Rank) -> None:
        """As one is to be taken over its replicas say other digests: most are believed."""
        family = self.family(rank)
        if len(family.together) < 4 or rank not in family.together:
            return
        odd = next(one for one in reversed(family.together) if one != rank)
        holders = {r: "odd" if r == odd else "most" for r in family.together if r != rank}
        known = self.chance.random() < 0.7
        unlike = [] if known else [r for r in holders if r != odd]
        self.job = not_believed(
            self.job, Unproven(rank=rank, epoch=self.job.epoch, holders=holders, unlike=unlike)
        )
        gone = [odd] if known else [*family.together]
        family.together = [] if not known else [r for r in family.together if r != odd]
        for one in self.ranks:
            found = replicas(self.job, one, self.ranks)
            if one in gone and found:
                raise Violation(f"{one} holds what nobody else does, and it is said {found}")
            if {*found} & {*gone}:
                raise Violation(f"{gone} hold what nobody else does, and {one} has {found}")


def _of_before(fact: Fingerprinted) -> Fingerprinted:
    """What was told in an epoch that is over."""
    return _changed(fact, epoch=Epoch(fact.epoch - 1), rest=bytes(len(fact.rest)))


def _in_odd_sections(fact: Fingerprinted, chance: random.Random) -> Fingerprinted:
    """With a hash for each of them, as there should be."""
    sections = chance.choice(([8], [6, 3, -1], [5, 2, 0, 1], [5, 2, 2]))
    rest = sum(sections) - sections[0]
    paths = [f"odd {n}" for n in range(8)]
    return _changed(
        fact, layout=f"odd {sections}", paths=paths, sections=sections, like=None,
        shared=bytes(8 * sections[0]), rest=bytes(8 * rest),
    )  # fmt: skip


def _changed(fact: Fingerprinted, **its: object) -> Fingerprinted:
    import msgspec

    return msgspec.structs.replace(fact, **its)
