# SPDX-License-Identifier: Apache-2.0
"""Session of one run of a script under check: captures, restores and repeats its steps.

    run       some steps; capture; more steps; restore in place; the same steps again
    standby   some steps of another process; restore the run's capture; the same steps

Both must compute the same numbers. The boundary of a step is a turn of the innermost loop around
the update (`loops`): there all of the script's variables can be read and set.
"""

import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from trainmover.check.arrival import Arrival
from trainmover.check.numbers import Numbers
from trainmover.check.watch import Watch
from trainmover.graph import frames as stack
from trainmover.graph.compare import Difference, differences
from trainmover.graph.nodes import Graph
from trainmover.graph.process import ProcessState
from trainmover.graph.restore import restore
from trainmover.graph.script import Script
from trainmover.graph.walk import capture
from trainmover.loops.place import ActiveLoop, active_loops, current_loop


class Finished(BaseException):
    """The session has seen enough. Not an Exception: a script's handlers let it pass."""


class Phase(Enum):
    """Stages of a session, each with what it waits for."""

    WARM_UP = "enough steps before the capture"
    ARRIVAL = "the place of the run's capture"
    FIRST = "the steps behind the capture"
    AGAIN = "the same steps again"
    OVER = "nothing"


@dataclass
class Proof:
    """Findings of a repetition of steps.

    losses       values that `backward` was called on, in hex: of the first time, and of the second
    differences  paths with another value after the last step
    notes        what could not be restored
    missed       paths whose change the looks from turn to turn have not found
    """

    first: list[str] = field(default_factory=list)
    second: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missed: list[Difference] = field(default_factory=list)


@dataclass
class Handover:
    """Legacy of a run for its standby: the capture, and where the run came to from there."""

    captured: Graph
    after: Graph
    losses: list[str]


class Session:
    """Run of a script under check.

    warm_up  updates before the capture, or before a standby takes over
    turns    turns of the loop that are repeated
    taken    what a run has left, if this is a standby
    """

    def __init__(
        self,
        script: Script,
        main: dict[str, Any],
        *,
        warm_up: int,
        turns: int,
        taken: Handover | None = None,
    ) -> None:
        self.proof = Proof(first=[] if taken is None else taken.losses)
        self.captured = None if taken is None else taken.captured
        self.after = None if taken is None else taken.after
        self.loops: list[ActiveLoop] = []
        self.phase = Phase.WARM_UP
        self._is_standby = taken is not None
        self._script, self._main = script, main
        self._process = ProcessState(script)
        self._numbers = Numbers()
        self.watch = Watch(script)
        self._warm_up, self._turns = warm_up, turns
        self._left = 0
        self._thread = threading.get_ident()
        self._arrival = Arrival()
        self._loop_of_updates: Any = None

    def begin(self) -> Callable[[], None]:
        """Watch updates and losses from now on; returns how to stop that."""
        return self._numbers.watch(self._updated)

    def _updated(self) -> None:
        """Mark the innermost loop around the update: its turns are the boundaries."""
        frame = sys._getframe(1)
        loop = current_loop(frame)
        if loop is None or loop is self._loop_of_updates:
            return
        if self._loop_of_updates is None:
            self.loops = active_loops(frame)
        self._loop_of_updates = loop
        loop.is_transaction = True

    def loop_begins(self, loop: Any) -> None:
        """Do what is due as a loop begins: on the way to another place it takes one turn."""
        if self.phase is Phase.ARRIVAL:
            self._arrival.loop_begins(loop)

    def turn(self, loop: Any) -> None:
        """Do what is due at a boundary. Raises Finished when all is done."""
        if threading.get_ident() != self._thread:
            return
        frames = stack.script_frames(sys._getframe(1), self._main)
        match self.phase:
            case Phase.WARM_UP if self._numbers.updates >= self._warm_up:
                self._warmed_up(frames, loop)
            case Phase.ARRIVAL:
                self._arrive(frames, loop)
            case Phase.FIRST | Phase.AGAIN:
                self._count_down(frames)
            case Phase.OVER:  # The script has caught it.
                raise Finished
            case _:
                pass

    def _warmed_up(self, frames: list[types.FrameType], loop: Any) -> None:
        if self._is_standby:
            self.phase = Phase.ARRIVAL
            self._arrive(frames, loop)
            return
        self.captured = self._capture(frames)
        self.watch.begin(frames, self._process.roots(), self._active(frames))
        self.phase = Phase.FIRST
        self._left, self._numbers.losses = self._turns, []

    def _arrive(self, frames: list[types.FrameType], loop: Any) -> None:
        assert self.captured is not None
        if stack.place_of(frames) == self.captured.place:
            self.phase = Phase.AGAIN
            self._restore(frames)
            return
        self._arrival.turn(loop, self._active(frames))
        if self._arrival.is_over:
            raise Finished

    def _count_down(self, frames: list[types.FrameType]) -> None:
        assert self.captured is not None
        self._left -= 1
        if self.phase is Phase.FIRST:
            self.watch.look(frames, self._process.roots(), self._active(frames))
        if self._left > 0 or stack.place_of(frames) != self.captured.place:
            return
        if self.phase is Phase.FIRST:
            self.proof.first = self._numbers.losses
            self.after = self._capture(frames)
            self.proof.missed = self.watch.missed(self.after)
            self._restore(frames)
            return
        assert self.after is not None
        self.proof.second = self._numbers.losses
        self.proof.differences = [*differences(self.after, self._capture(frames))]
        self.phase = Phase.OVER
        raise Finished

    def _capture(self, frames: list[types.FrameType]) -> Graph:
        roots, active = self._process.roots(), self._active(frames)
        return capture(frames, self._script, roots, active, with_loose=True)

    def _restore(self, frames: list[types.FrameType]) -> None:
        assert self.captured is not None
        roots = self._process.roots()
        self.proof.notes = restore(self.captured, frames, self._script, roots, self._active(frames))
        self._process.write(roots)
        unlike = differences(self.captured, self._capture(frames))
        self.proof.notes += [f"{one.path} was not restored: {one.second}" for one in unlike]
        self.phase = Phase.AGAIN
        self._left, self._numbers.losses = self._turns, []

    @staticmethod
    def _active(frames: list[types.FrameType]) -> list[Any]:
        """Return the loops that the frames are in: each frame holds its own on its stack."""
        return [one.loop for one in active_loops(frames[-1] if frames else None)]
