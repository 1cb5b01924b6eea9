"""What the script has drawn for the coming step: which fetch was the first, and which samples."""

from typing import Any

from trainmover.ids import Step
from trainmover.protocol.messages import Draw
from trainmover.worker.ahead import Ahead
from trainmover.worker.batches import Batches
from trainmover.worker.loops import Loop, Loops

AHEAD = (
    "batches are drawn before the step that precedes theirs: what the script holds of them no "
    "other machine has, so that the numbers will differ after a move or a loss; draw a step's "
    "batch after the step before"
)
"""Warning about a script that holds batches in reserve."""


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
