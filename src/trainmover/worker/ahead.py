"""Does the script draw batches ahead of the steps they are for? What it holds of them is lost with
its process: a joiner draws again what was fetched since the last step, and nothing from before."""

from trainmover.worker.loops import Loop

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
