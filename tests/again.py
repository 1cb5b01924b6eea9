"""A step that is made again, of no script: tracked objects and what the step is called with."""

import sys
from typing import Any

from trainmover.state.tracked import Tracked
from trainmover.worker.keep.script_graph import ScriptGraph
from trainmover.worker.step.before import Before
from trainmover.worker.step.changes import Changes


class Again:
    """State as the step begins, put back as `Member.begin_again` does it."""

    def __init__(self, tracked: Tracked, args: Any = (), kwargs: Any = None) -> None:
        self._tracked, changes = tracked, Changes()
        changes.begin(tracked)
        self._frame = sys._getframe()
        self.graph = ScriptGraph(lambda: changes.storages(tracked), list, [].append)
        self.graph._script.modules = dict  # type: ignore[method-assign]
        self.graph._frames = lambda _: []  # type: ignore[method-assign]
        objects = [one for _, one in tracked.items()]
        self.before = Before.take(tracked)
        self.graph.begin_step(self._frame, [(*args, *objects), kwargs or {}])

    def put_back(self) -> str:
        """Put it back; returns why that could not be."""
        if why := self.before.why_not():
            return why
        self.before.restore(self._tracked)
        return self.graph.put_back(self._frame)
