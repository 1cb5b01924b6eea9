# SPDX-License-Identifier: Apache-2.0
"""Ways past torch's counters to memory that steps train, before the gate of a step.

Through an alias (`.data`, numpy's view of a tensor) a script writes without a mark. No look at
bytes would find in time a script that begins to do so in its thousandth step, but the making of one
is seen (`torch_internals.watching.aliases`). Whether anything is written there nobody asks: a step
that has made one before its gate, or holds one, is not made again in place.
"""

import weakref
from collections.abc import Callable, Set
from typing import Any

from trainmover.state.tracked import Tracked
from trainmover.torch_internals.watching.aliases import aliases, storage_of
from trainmover.worker.step.changes import Changes, watched


class Unseen:
    """Aliases of one rank's bulk state. Main thread, but for `_reaches`.

    path      what such an alias reaches, in the try under way; "": there is none
    any       whether there ever was one
    distrust  called once with why a copy that is made beside a step may be none
    """

    def __init__(self, changes: Changes, distrust: Callable[[str], None]) -> None:
        self.path, self.any = "", False
        self._changes, self._distrust = changes, distrust
        self._tracked: Tracked | None = None
        self._storages: Set[int] = (
            frozenset()
        )  # As the try began: aliases may be made by the score.
        self._held: list[tuple[weakref.ref[Any], int]] = []

    def begin(self, tracked: Tracked) -> None:
        """A step starts, or starts again; `changes` has begun."""
        self._tracked, self.path = tracked, ""
        self._storages = self._changes.storages(tracked)
        if fresh := aliases.take_fresh():
            self._held += [one for one in fresh if one[1] in self._storages]
        if self._held:
            self._held = [one for one in self._held if one[0]() is not None]
            for _, start in self._held:
                self._reaches(start)
        aliases.about_to = self._reaches

    def end(self) -> None:
        """At the gate, or where the attempt ends."""
        self._tracked = aliases.about_to = None

    def forget(self) -> None:
        """Drop every reference to what the script made."""
        self.end()
        self._held = []

    def _reaches(self, start: int) -> None:
        """Note an alias of the storage at this address. Called from any thread of the script's."""
        tracked = self._tracked
        if tracked is None or self.path or start not in self._storages:
            return
        found = (path for path, tensor in watched(tracked) if storage_of(tensor) == start)
        self.path = next(found, "what is tracked")
        if not self.any:
            self.any = True
            self._distrust(f"{self.path} may have been written to unseen")
