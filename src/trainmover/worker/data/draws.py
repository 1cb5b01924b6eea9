"""What the script has drawn for the coming step: which fetch was the first, and which samples."""

from typing import Any

from trainmover.ids import Step
from trainmover.protocol.messages import Draw
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.loops import Loop, Loops

AHEAD = (
    "batches are drawn before the step that precedes theirs: what the script holds of them no "
    "other machine has, so that the numbers will differ after a move or a loss; draw a step's "
    "batch after the step before"
)
"""Warning about a script that holds batches in reserve."""


_STEPS = 3


class Ahead:
    """Counts the fetches for each of the first steps, by the loop that fetched last.

    A script that keeps one batch in reserve fetches twice before its first step and once before
    each of the others. Several batches for every step are no reserve.
    """

    def __init__(self) -> None:
        self._loop: Loop | None = None
        self._fetched = 0
        self._counts: list[tuple[Loop | None, int]] = []

    def fetched(self, loop: Loop) -> None:
        """A batch was drawn."""
        self._fetched = self._fetched + 1 if loop is self._loop else 1
        self._loop = loop

    def begin_step(self) -> bool | None:
        """Whether batches are drawn ahead; None: that is not known yet."""
        self._counts.append((self._loop, self._fetched))
        self._fetched = 0
        if len(self._counts) < _STEPS:
            return None
        loops, (first, *others) = {loop for loop, _ in self._counts}, [n for _, n in self._counts]
        return len(loops) == 1 and set(others) == {others[0]} and first > others[0] > 0


class Draws:
    """Since the last step began, made or tried.

    samples  of the batches drawn, from loops that were asked for them
    """

    def __init__(self, loops: Loops) -> None:
        self.samples: list[Draw] = []
        self._loops = loops
        self._stepped = False
        self._first_in: Loop | None = None  # Main loop at the first fetch.
        self._ahead: Ahead | None = Ahead()

    @property
    def go_on(self) -> bool:
        """Whether the fetch to come is not the first for its step."""
        return not self._stepped and self._first_in is self._loops.main

    def take(self, batches: Batches, rng: bytes, calls: Step) -> Any:
        """The next batch of the loop just entered; see `Loops.take`."""
        main = self._loops.main
        batch = self._loops.take(batches, rng, calls)
        self._stepped, self._first_in = False, main
        if self._ahead is not None:
            self._ahead.fetched(self._loops.fetching)
        if batches.samples is not None:
            self.samples.append(self._loops.draw(batches, batch))
        return batch

    def begin_step(self) -> None:
        """A step is tried, or passed over: the next fetch is for another one."""
        self._stepped = True

    def end_step(self) -> None:
        """What was drawn is used, or given up."""
        self.samples = []

    def warning(self) -> str:
        """To be asked once as each step begins: what is to be said now about how it draws."""
        found = None if self._ahead is None else self._ahead.begin_step()
        if found is None:
            return ""
        self._ahead = None
        return AHEAD if found else ""
