# SPDX-License-Identifier: Apache-2.0
"""Watch over a run under check: what each step changes, and what it costs to find that."""

import time
import types
from collections.abc import Mapping, Sequence

from trainmover.graph.compare import Difference, differences
from trainmover.graph.delta import apply
from trainmover.graph.look import Look
from trainmover.graph.nodes import Graph
from trainmover.graph.script import Script


class Watch:
    """Looks from turn to turn, and the graph that they add up to.

    changed  nodes that each look found to be other than before
    took_us  microseconds that each look took
    """

    def __init__(self, script: Script) -> None:
        self.changed: list[int] = []
        self.took_us: list[float] = []
        self._look = Look(script)
        self._graph: Graph | None = None

    def begin(
        self,
        frames: list[types.FrameType],
        process: Mapping[str, object],
        active: Sequence[object],
    ) -> None:
        """Capture the graph that looks continue."""
        self._graph = self._look.capture(frames, process, active)

    def look(
        self,
        frames: list[types.FrameType],
        process: Mapping[str, object],
        active: Sequence[object],
    ) -> None:
        """Find what has changed since the last look."""
        assert self._graph is not None
        begun = time.perf_counter_ns()
        delta = self._look.delta(frames, process, active)
        self.took_us.append((time.perf_counter_ns() - begun) / 1000)
        self.changed.append(len(delta.nodes))
        self._graph = apply(self._graph, delta)

    def missed(self, captured: Graph) -> list[Difference]:
        """Return what a full capture at the last look shows, and the looks have not found."""
        assert self._graph is not None
        return [*differences(self._graph, captured)]
