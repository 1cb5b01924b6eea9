# SPDX-License-Identifier: Apache-2.0
"""Later steps of a rank: from time to time one is compared with those that were recorded.

A script may turn to other steps long after its first ones: another graph is compiled, another loss
begins to count. What standbys have proven is old then, and what they took of compiled code is not
all that they need. The steps that are looked at are those a round follows (`rounds`), so that all
ranks have put theirs into vaults when the first one says so.
"""

from trainmover.comm import groups
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import StepsChanged
from trainmover.sandbox.step_trace import StepTrace
from trainmover.torch_internals import compiling
from trainmover.worker.keep.first_steps import Recording
from trainmover.worker.keep.rounds import is_due


class LaterSteps:
    """Of a rank that keeps a record of its first steps; of others, the one that serves them tells.

    every  as in `is_due`
    """

    def __init__(self, rank: Rank, every: int, recording: Recording) -> None:
        self._rank = rank
        self._every = every
        self._recording = recording
        self._known: set[tuple[str, str]] = set()

    def begin_step(self, step: Step) -> None:
        """A step starts, or starts again: it is heard if it is one to be looked at."""
        recording = self._recording
        recording.later = None
        if recording.kept.record and recording.recorder is None and is_due(step, self._every):
            recording.later = groups.tap = StepTrace()

    def end_try(self) -> None:
        """The function has returned, or raised."""
        if self._recording.later is not None and groups.tap is self._recording.later:
            groups.tap = None

    def look(self, step: Step) -> StepsChanged | None:
        """The step is committed: what is new about it, once what was compiled is with the buddy.

        Raises PeerLost; then the next look tells it.
        """
        recording = self._recording
        heard, recording.later = recording.later, None
        if heard is None:
            return None
        if not self._known:
            self._known.add((recording.trace, recording.kept.made))
        if compiling.graphs() != recording.graphs:
            recording.pack_again()
        now = (heard.trace(), recording.kept.made)
        if now in self._known:
            return None
        self._known.add(now)
        return StepsChanged(rank=self._rank, step=step, trace=now[0], compiled=now[1])
