"""Steps of one function that has its gate in it, as a rank makes them."""

import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from torch import Tensor

from trainmover.worker.step.results.foreseen import Foreseen

Gate = Callable[[], None]


class Steps:
    """Of one function. seen: what its newest gate knew, sent: what went to the buddy behind it."""

    def __init__(
        self,
        function: Callable[[Gate, float], Any],
        kept: Callable[[], Iterable[Tensor]] = tuple,
    ) -> None:
        self.function = function
        self.foreseen = Foreseen(kept)
        self.seen = self.sent = b""
        self.calls, self.blind = 0, list[int]()

    def make(self, number: float) -> Any:
        self.foreseen.begin()
        result = self.function(self._gate, number)
        self.seen = self.foreseen.result
        self.sent = self.foreseen.returned(self.function.__code__, result)
        self.calls += 1
        if self.foreseen.goes_blind(self.function.__code__):
            self.blind.append(self.calls)
        return result

    def _gate(self) -> None:
        def frames() -> Iterator[FrameType]:
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code is not self.function.__code__:
                yield frame
                frame = frame.f_back
            assert frame is not None
            yield frame

        self.foreseen.at_gate(self.function.__code__, frames)
