# SPDX-License-Identifier: Apache-2.0
"""What the script has drawn: which fetch was the first for the coming step, and which samples.

The place that a rank's record keeps is such a first fetch. Batches that a script draws ahead of
their steps lie in its variables, and go along with those.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from trainmover.errors import StateMismatch
from trainmover.ids import Step
from trainmover.protocol.messages import Draw
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.loops import Loops
from trainmover.worker.step.keeper import Moment, RankRecord

_KNOWN_MAX = 10_000


@dataclass
class Drawn:
    """Hashes of the batches that were drawn for one step; of each try that the script gave up, and
    of the one that it made.

    is_open  the last one was given up: another batch may follow
    """

    tries: list[list[int]]
    is_open: bool = False


KnownDraws = dict[tuple[int, Step], Drawn]
"""Of a process, by rank and step. All ranks may go back to a snapshot, and make steps again."""


@dataclass(frozen=True)
class Place:
    """The first fetch for a step, just before it.

    number  of the fetch
    step    the one that is to follow
    moment  RNG and small state
    groups  of the script, by then
    the rest  as in `RankRecord`
    """

    number: int
    step: Step
    moment: Moment
    positions: list[list[Any]]
    beside: list[list[Any]]
    member: list[int]
    groups: bytes


class Draws:
    """Since the last step began, made or tried.

    samples  of the batches drawn, from loops that were asked for them
    """

    def __init__(self, loops: Loops) -> None:
        self.samples: list[Draw] = []
        self._loops = loops
        self._stepped = False
        self._first_in: int | None = None  # Number of the main loop at the first fetch.
        self._place: Place | None = None
        self._marks = 0  # Made for its step.
        self._hashes: deque[tuple[int, int]] = deque()

    @property
    def go_on(self) -> bool:
        """Whether the fetch to come is not the first for its step."""
        return not self._stepped and self._first_in == self._loops.main.number

    # --- where the rank is taken up again ---------------------------------------------------------

    def mark(self, place: Place, rows: list[bytes]) -> RankRecord:
        """The first fetch for a step is about to be made: what a joiner needs now."""
        before, self._place = self._place, place
        if before is None or before.step != place.step:
            self._marks = 1
        elif before.number != place.number:
            self._marks += 1
        while self._hashes and self._hashes[0][0] < place.number:
            self._hashes.popleft()
        return RankRecord(
            place.step,
            place.positions,
            place.moment,
            rows,
            place.beside,
            place.member,
            groups=place.groups,
            marks=self._marks,
        )

    def stand_at(self, record: RankRecord) -> None:
        """The fetch under way is where the record begins."""
        self._first_in, self._marks = None, record.marks
        self._hashes.clear()
        self._place = Place(
            self._loops.fetches,
            record.step,
            record.top,
            record.positions,
            record.beside,
            record.member,
            record.groups,
        )

    def check_again(self, rank: int, step: Step, known: "KnownDraws") -> None:
        """What is drawn for a step that this process has made before, as this rank, is what was
        drawn then. Raises StateMismatch."""
        if self._place is None:
            return
        quick = [hashed for at, hashed in self._hashes if at >= self._place.number]
        drawn = known.setdefault((rank, step), Drawn([quick]))
        if quick not in drawn.tries and drawn.is_open:
            drawn.tries.append(quick)
        drawn.is_open = False
        if quick not in drawn.tries:
            raise StateMismatch(
                f"For step {step} rank {rank} has drawn another batch than when it made that step "
                "first.",
                means="The job must not go on: its numbers would be others.",
                do="A pass must give the same batches each time that it is begun again.",
            )
        while len(known) > _KNOWN_MAX:
            del known[next(iter(known))]

    def made_none(self, rank: int, step: Step, known: "KnownDraws") -> None:
        """The script has caught what the step raised before its gate: what was drawn for it counts
        for none, and the step of that number is made with another batch."""
        if (drawn := known.get((rank, step))) is not None:
            drawn.is_open = True

    @property
    def rng_before(self) -> bytes:
        """RNG just before the fetch that was marked last."""
        assert self._place is not None
        return self._place.moment.rng

    # --- fetches and steps ------------------------------------------------------------------------

    def take(self, batches: Batches, rng: bytes, calls: Step, at: list[int]) -> Any:
        """The next batch of the loop just entered; see `Loops.take`."""
        main = self._loops.main.number
        batch = self._loops.take(batches, rng, calls, at)
        self._stepped, self._first_in = False, main
        if batches.hash is not None:
            self._hashes.append((self._loops.fetches, batches.hash))
        if batches.samples is not None:
            self.samples.append(self._loops.draw(batches, batch))
        return batch

    def begin_step(self) -> None:
        """A step is tried: the next fetch is for another one."""
        self._stepped = True

    def end_step(self) -> None:
        """What was drawn is used, or given up."""
        self.samples = []
