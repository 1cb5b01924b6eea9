# SPDX-License-Identifier: Apache-2.0
"""Rounds: from time to time all ranks hash what they track, and the controller compares.

A round is made after the commit of a step that every rank knows without asking: of the first steps
a few, further and further apart, then every so many; and of one whose gate has shown that ranks are
alike no more (`likeness`). Where a round shows that, all ranks take a snapshot at the boundary,
before anybody has asked for one: what is their own is in no other memory.

Ranks tell each other the hash of their whole shared state, so that of many replicas one says the
hashes of all tensors and the others say whose they have. A round that is interrupted is none.
"""

import time
from collections.abc import Callable

import torch

from trainmover.comm import Drained
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Fingerprinted, WorkerFact
from trainmover.state.proof.fingerprint import HASH_BYTES, fingerprint
from trainmover.state.tracked import Tracked
from trainmover.worker.standing import GuardedStanding
from trainmover.worker.step.gate import Gate

EARLY = frozenset({3, 10, 30, 100, 300})
"""Hardly any cost, and replicas are known as soon as a rank can be taken over."""


def is_due(step: Step, every: int) -> bool:
    """Whether a round follows this step. every: 0: none does.

    >>> [step for step in range(1, 2001) if is_due(Step(step), 800)]
    [3, 10, 30, 100, 300, 800, 1600]
    """
    return every > 0 and (step in EARLY or step % every == 0)


def is_compared(step: Step, every: int) -> bool:
    """Whether all that ranks hold after this step is compared: in a round, or as they record."""
    return step in EARLY or is_due(step, every)


class Rounds:
    """One rank's part in all of them.

    tainted  whether what was computed since the last boundary may be garbage
    keep_own called where ranks that were alike have parted; None: snapshots are off
    """

    def __init__(
        self,
        rank: Rank,
        every: int,
        *,
        gate: Gate,
        standing: GuardedStanding,
        tainted: Callable[[], bool],
        say: Callable[[WorkerFact], None],
        keep_own: Callable[[], None] | None = None,
    ) -> None:
        self._keep_own = keep_own
        self._rank = rank
        self._every = every
        self._gate = gate
        self._standing = standing
        self._tainted = tainted
        self._say = say
        self._told: set[int] = set()  # Layouts whose paths this process has said.

    def after(self, step: Step, tracked: Tracked) -> None:
        """To be called by every rank after every commit, in the same place."""
        parted = self._gate.likeness.parted
        if not (is_due(step, self._every) or parted) or self._tainted():
            return
        epoch = self._standing.epoch
        began_ns = time.monotonic_ns()
        mine = fingerprint(tracked)
        took_us = (time.monotonic_ns() - began_ns) // 1000
        layout = mine.layout
        try:
            layouts, replicas = self._of_all(layout, mine.replica)
        except Drained:
            return
        if self._gate.likeness.round_shows(alike=len(set(replicas)) == 1):
            self._keep_what_is_own(step)
        alike = Rank(replicas.index(replicas[self._rank]))
        tells = layouts.index(layouts[self._rank]) == self._rank and layout not in self._told
        self._told |= {layout} if tells else set()
        self._say(
            Fingerprinted(
                rank=self._rank,
                epoch=epoch,
                step=step,
                layout=f"{layout:016x}",
                paths=mine.paths if tells else None,
                sections=list(mine.sections) if tells else [],
                like=None if alike == self._rank else alike,
                shared=mine.shared if alike == self._rank else b"",
                rest=mine.rest,
                read=mine.read,
                took_us=took_us,
            )
        )

    def _keep_what_is_own(self, step: Step) -> None:
        """From this boundary on; all ranks have seen it in the same round. One snapshot that is on
        its way is waited for: the next follows when the controller asks for it."""
        if self._keep_own is None:
            return
        self._keep_own()
        if self._gate.cut:
            return
        with self._standing.changed:
            self._standing.agree_on_cut(step)

    def _of_all(self, layout: int, replica: int) -> tuple[list[int], list[int]]:
        """The two hashes of every rank, in their order. Raises Drained."""
        mine = b"".join(hash_.to_bytes(HASH_BYTES, "little") for hash_ in (layout, replica))
        rows = self._gate.gather(torch.frombuffer(bytearray(mine), dtype=torch.int64))
        layouts, replicas = rows.T.tolist()
        return layouts, replicas
