# SPDX-License-Identifier: Apache-2.0
"""What the script has drawn: which fetch was the first for the coming step, and which samples.

The place that a rank's record keeps is such a first fetch: mostly the last one. A script that holds
batches in reserve (draws the batch of step 6 before step 5 is made) has it further back, where the
oldest of them was drawn: who takes the rank goes on from there, draws them again, and passes over
the steps that are committed.
"""

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from trainmover.errors import StateMismatch, UserError
from trainmover.ids import Step
from trainmover.protocol.messages import Draw
from trainmover.worker.data.batch_hash import BatchHash
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.loops import Loop, Loops
from trainmover.worker.step.keeper import Moment, RankRecord

RESERVE_MAX = 8
"""Steps whose batches a script may hold."""
_STEPS = 3
_KNOWN_MAX = 10_000

KnownDraws = dict[tuple[int, Step], list[int]]
"""Of a process: by rank and step the hashes of the batches that were drawn for it. All ranks may go
back to a cut, and make steps again."""


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


class Ahead:
    """Counts the fetches for each of the first steps, by loop.

    A script that keeps batches in reserve fetches more of them before its first step than before
    each of the others. Several batches for every step are no reserve. Where the pass ends, what is
    in reserve is used up: the fetch that finds no more counts as one, if a step is made then.
    """

    def __init__(self) -> None:
        self._counts: list[Counter[Loop]] = [Counter()]
        self._over: dict[Loop, int] = {}  # For how many steps it has fetched, with that one.
        self._found_none: Loop | None = None  # With the last fetch.

    def fetched(self, loop: Loop) -> None:
        """A batch was drawn."""
        self._found_none = None
        self._counts[-1][loop] += 1

    def ended(self, loop: Loop) -> None:
        """There was none to draw."""
        self._found_none = loop

    def begin_step(self) -> int | None:
        """For how many steps batches are held in reserve; None: that is not known yet."""
        over, self._found_none = self._found_none, None
        if over is not None and not self._counts[-1][over]:  # Else it may have used the rest.
            self._counts[-1][over] += 1
            self._over[over] = len(self._counts)
        if len(self._counts) < _STEPS:
            self._counts.append(Counter())
            return None
        return max(map(self._reserve, self._counts[0]), default=0)

    def _reserve(self, loop: Loop) -> int:
        first, *others = [its[loop] for its in self._counts[: self._over.get(loop)]]
        return _reserve(first, others)


def _reserve(first: int, others: list[int]) -> int:
    each = others[0] if others else 0
    if not each or any(count != each for count in others) or first <= each:
        return 0
    return -(-(first - each) // each)


class Draws:
    """Since the last step began, made or tried.

    samples  of the batches drawn, from loops that were asked for them
    reserve  for how many steps to come the script holds batches
    """

    def __init__(self, loops: Loops) -> None:
        self.samples: list[Draw] = []
        self.reserve = 0
        self._loops = loops
        self._stepped = False
        self._first_in: int | None = None  # Number of the main loop at the first fetch.
        self._ahead: Ahead | None = Ahead()
        self._places: deque[Place] = deque(maxlen=RESERVE_MAX + 1)
        self._hashes: deque[tuple[int, BatchHash]] = deque()

    @property
    def go_on(self) -> bool:
        """Whether the fetch to come is not the first for its step."""
        return not self._stepped and self._first_in == self._loops.main.number

    # --- where the rank is taken up again ---------------------------------------------------------

    def mark(self, place: Place, rows: list[bytes]) -> RankRecord:
        """The first fetch for a step is about to be made: what a joiner needs now."""
        if self._places and self._places[-1].number == place.number:
            self._places.pop()  # A fetch that waits for others may be marked again.
        self._places.append(place)
        while self._hashes and self._hashes[0][0] < self._places[0].number:
            self._hashes.popleft()
        oldest = self._oldest
        drawn = [hashed.pair for number, hashed in self._hashes if number >= oldest.number]
        later, each = self._since(oldest) if self.reserve else ([], 0)
        return RankRecord(
            place.step,
            True,
            oldest.step,
            oldest.positions,
            oldest.moment,
            place.moment if later else None,
            rows,
            oldest.beside,
            oldest.member,
            drawn,
            self.reserve,
            each,
            later,
            groups=oldest.groups,
        )

    def _since(self, oldest: Place) -> tuple[list[bytes], int]:
        """RNG at the fetches since, and how many of any loop came before the next step."""
        since = [its for its in self._places if its.number > oldest.number]
        next_step = (its.number for its in since if its.step != oldest.step)
        return [its.moment.rng for its in since], next(next_step, oldest.number) - oldest.number

    def stand_at(self, record: RankRecord) -> None:
        """The fetch under way is where the record begins."""
        self.reserve = record.reserve
        self._ahead = self._first_in = None
        self._places.clear()
        self._hashes.clear()
        self._places.append(
            Place(
                self._loops.fetches,
                record.top_step,
                record.top,
                record.positions,
                record.beside,
                record.member,
                record.groups,
            )
        )

    def pass_by(self, place: Place) -> None:
        """A joiner, on its way from there to where the rank stood, makes this fetch again."""
        self._places.append(place)

    @property
    def drawn(self) -> list[list[int]]:
        """Hashes of the batches since the place that the record keeps."""
        since = self._oldest.number if self._places else 0
        return [hashed.pair for number, hashed in self._hashes if number >= since]

    def check_again(self, rank: int, step: Step, known: "KnownDraws") -> None:
        """What is drawn for a step that this process has made before, as this rank, is what was
        drawn then. Raises StateMismatch."""
        if not self._places:
            return
        number = self._places[-1].number
        quick = [hashed.quick for at, hashed in self._hashes if at >= number]
        if known.setdefault((rank, step), quick) != quick:
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
        known.pop((rank, step), None)

    @property
    def rng_before(self) -> bytes:
        """RNG just before the fetch that was marked last."""
        return self._places[-1].moment.rng

    @property
    def _oldest(self) -> Place:
        return self._places[max(0, len(self._places) - 1 - self.reserve)]

    # --- fetches and steps ------------------------------------------------------------------------

    def take(self, batches: Batches, rng: bytes, calls: Step, at: list[int]) -> Any:
        """The next batch of the loop just entered; see `Loops.take`."""
        main = self._loops.main.number
        try:
            batch = self._loops.take(batches, rng, calls, at)
        except StopIteration:
            if self._ahead is not None:
                self._ahead.ended(self._loops.fetching)
            raise
        self._stepped, self._first_in = False, main
        if self._ahead is not None:
            self._ahead.fetched(self._loops.fetching)
        self.note(batches)
        if batches.samples is not None:
            self.samples.append(self._loops.draw(batches, batch))
        return batch

    def note(self, batches: Batches) -> None:
        """What was drawn from it last is part of what a joiner draws again."""
        if batches.hash is not None:
            self._hashes.append((self._loops.fetches, batches.hash))

    def begin_step(self) -> None:
        """A step is tried, or passed over: the next fetch is for another one."""
        self._stepped = True

    def end_step(self) -> None:
        """What was drawn is used, or given up."""
        self.samples = []

    def look_ahead(self) -> None:
        """To be called once as each step begins. Raises UserError for a reserve that is too large
        to be drawn again."""
        found = None if self._ahead is None else self._ahead.begin_step()
        if found is None:
            return
        self._ahead, self.reserve = None, found
        if found > RESERVE_MAX:
            raise UserError(
                f"The script holds the batches of {found} steps to come.",
                means=f"Whoever takes a rank would have to draw them again, which it does for "
                f"{RESERVE_MAX} steps at most.",
                do="Draw fewer ahead: a DataLoader with workers loads ahead by itself.",
            )
