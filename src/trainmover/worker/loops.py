"""Where the script stands in its data: the loops over batches it is in, outermost first."""

import weakref
from dataclasses import dataclass
from typing import Any

from trainmover.ids import Step
from trainmover.worker.batches import Batches


@dataclass
class Loop:
    """A loop over batches that the script is in.

    ordinal   how many began before it: since the last fetch of the loop around it, or of all
    position  just before its last fetch, as `rng` and `calls`, the steps made until then
    begun     loops that began inside since its last fetch
    """

    batches: "weakref.ref[Batches]"
    ordinal: int
    position: Any = None
    rng: bytes = b""
    calls: int = 0
    begun: int = 0
    ended: bool = False

    @property
    def open(self) -> bool:
        """Whether the script may still fetch: a loop that was left by `break` is dropped."""
        return not self.ended and self.batches() is not None


class Loops:
    """The loops of one run of the script."""

    def __init__(self) -> None:
        self._in: list[Loop] = []
        self._begun_outermost = 0

    @property
    def ordinals(self) -> list[int]:
        """Which loops the script is in."""
        return [loop.ordinal for loop in self._in]

    @property
    def innermost(self) -> Loop:
        """The loop that fetches now, or has fetched last."""
        return self._in[-1]

    def begin(self, batches: Batches) -> None:
        """A loop begins inside of those that have not ended."""
        self._in = [loop for loop in self._in if loop.open]
        if self._in:
            around = self._in[-1]
            ordinal, around.begun = around.begun, around.begun + 1
        else:
            ordinal, self._begun_outermost = self._begun_outermost, self._begun_outermost + 1
        self._in.append(Loop(weakref.ref(batches), ordinal))

    def enter(self, batches: Batches) -> None:
        """A batch is fetched: loops inside of this one are over."""
        place = next(i for i, loop in enumerate(self._in) if loop.batches() is batches)
        self._in = self._in[: place + 1]
        self._in[place].begun = 0

    def take(self, batches: Batches, position: Any, rng: bytes, calls: Step) -> Any:
        """The next batch of the loop just entered, whose place before it was this.

        Raises StopIteration if it gives none: then the loop has ended.
        """
        loop = self.innermost
        loop.position, loop.rng, loop.calls = position, rng, calls
        try:
            return next(batches)
        except StopIteration:
            loop.ended = True
            raise

    def positions(self, calls: Step) -> list[list[Any]]:
        """Of each loop: ordinal; position, RNG and steps just before its last fetch.

        The innermost is the one that fetches now, after `calls` steps; its RNG is kept beside.
        """
        *outer, inner = self._in
        batches = inner.batches()
        assert batches is not None
        places = [[loop.ordinal, loop.position, loop.rng, loop.calls] for loop in outer]
        return [*places, [inner.ordinal, batches.position(), b"", calls]]
