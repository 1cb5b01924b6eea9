# SPDX-License-Identifier: Apache-2.0
"""What a step may change before its gate without a mark: copied before it can.

Past torch's counters a script writes through an alias: `.data`, numpy's view of a tensor. No look
at bytes would find in time one that it begins to use in its thousandth step, but the making of one
is seen (`torch_internals.watching.aliases`), and it is made before it is written to:

    in the step          what it reaches is copied at once, once for each attempt
    before, and is held  what it reaches is copied as each step begins, for as long as it is held

Whether anything is written there nobody asks. Who makes none pays nothing.
"""

import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch import Tensor

from trainmover.state.tracked import Tracked
from trainmover.torch_internals.watching.aliases import aliases, storage_of
from trainmover.worker.step.changes import Changes, watched
from trainmover.worker.step.retry.undo import Undo


class Unseen:
    """Of one rank, for all its steps. Main thread, but for `_about_to`.

    names     of what was copied for the first time: to be told
    distrust  what is copied beside the step may be none: called with why
    """

    def __init__(self, undo: Undo, changes: Changes, distrust: Callable[[str], None]) -> None:
        self.names: list[str] = []
        self._undo = undo
        self._changes = changes
        self._distrust = distrust
        self._tracked: Tracked | None = None
        self._held: list[tuple[weakref.ref[Any], int]] = []
        self._known: set[str] = set()
        self._within: dict[int, list[tuple[str, Tensor]]] = {}
        self._addresses: object = None
        self._is_found = False

    def begin(self, tracked: Tracked) -> None:
        """A step starts, or starts again; `changes` has begun, and `undo`."""
        self._tracked, self._is_found = tracked, False
        if fresh := aliases.take_fresh():
            self._held += [one for one in fresh if one[1] in self._found(tracked)]
        if self._held:
            self._held = [one for one in self._held if one[0]() is not None]
            for start in {start for _, start in self._held}:
                self._copy(tracked, start)
        aliases.about_to = self._about_to

    def end(self) -> None:
        """At the gate, or where the attempt ends."""
        self._tracked = aliases.about_to = None

    def forget(self) -> None:
        """Drop every reference to what the script made."""
        self.end()
        self._held, self._within, self._addresses = [], {}, None

    def _about_to(self, start: int) -> None:
        """From whatever thread of the script's."""
        if self._tracked is not None:
            self._copy(self._tracked, start)

    def _copy(self, tracked: Tracked, start: int) -> None:
        reached = self._found(tracked).get(start)
        if not reached:
            return
        self._undo.copy([tensor for _, tensor in reached])
        for path, _ in reached:
            self._changes.covered.add(path)
            if path not in self._known:
                self._known.add(path)
                self.names.append(path)
                self._distrust(f"{path} may have been written to unseen")

    @property
    def any(self) -> bool:
        """Whether anything was ever found."""
        return bool(self._known)

    def _found(self, tracked: Tracked) -> dict[int, list[tuple[str, Tensor]]]:
        """Tracked tensors by the address of their storage. They are searched anew where one has
        another address than it had, as the marks of this step's begin tell."""
        if not self._is_found:
            self._is_found = True
            addresses = self._changes.addresses()
            if self._addresses is None or addresses != self._addresses:
                self._addresses, self._within = addresses, _by_storage(tracked)
        return self._within


def _by_storage(tracked: Tracked) -> dict[int, list[tuple[str, Tensor]]]:
    found = defaultdict(list)
    for path, tensor in watched(tracked):
        if start := storage_of(tensor):
            found[start].append((path, tensor))
    return dict(found)
