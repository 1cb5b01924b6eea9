# SPDX-License-Identifier: Apache-2.0
"""How a run in the sandbox turns into a live rank: what the script's calls go to meanwhile.

    Shadow    the script runs as the rank, its collectives served from the record, and stands
    Takeover  when the switchover comes, state and place are taken
    Journey   if the rank stood elsewhere, the script goes there first

From then on they go to the member, as those of any rank do.
"""

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor

from trainmover.errors import StateMismatch
from trainmover.ids import Rank
from trainmover.state.tracked import Tracked
from trainmover.worker.data.batches import Batches
from trainmover.worker.join.shadow import Shadow
from trainmover.worker.join.takeover import Takeover
from trainmover.worker.step.keeper import RankRecord
from trainmover.worker.step.reported import code_of


class Joiner:
    """Runtime behind `Job` for one run of the script that begins in the sandbox.

    member    as which it runs; `is_shadow` until it is live
    shadow    the run in the sandbox
    takeover  takes the rank's state and place
    """

    def __init__(self, shadow: Shadow, token: bytes) -> None:
        self.member = shadow.member
        self.shadow = shadow
        self.takeover = Takeover(shadow, token)

    # --- what is answered here --------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Committed steps; in the sandbox, shadow steps."""
        member = self.member
        if not member.is_shadow:
            return member.steps
        if self.takeover.journey is not None:
            return member.calls
        return self.shadow.steps - member.in_step  # The one under way is not committed.

    def run_step(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A shadow step, one in a loop that is passed by, or a live one."""
        member = self.member
        if not member.is_shadow or member.in_step:
            return member.run_step(function, args, kwargs)
        journey = self.takeover.journey
        if journey is None:
            return self.shadow.run_step(function, args, kwargs)
        kind = member.kinds.of(code_of(function))
        return self._on_the_way(lambda: journey.pass_over(kind))

    def fetch(self, batches: Batches) -> Any:
        """The next batch. Shadow steps done: unwinds a warm-up, parks a bound run."""
        member, takeover = self.member, self.takeover
        if not member.is_shadow:
            return member.fetch(batches)
        member.let_go()
        member.loops.enter(batches)
        if takeover.journey is None:
            self.shadow.unwind_if_over()
            if not self.shadow.is_done:
                return self.shadow.take_next(batches)
            takeover.stand()
            if self.shadow.bound_for is None:  # Nobody waits for it yet.
                member.script_graph.get_ready(sys._getframe(1))
            goal = self.shadow.park()
            if isinstance(goal, RankRecord):
                takeover.try_way(self.shadow, goal)
            else:
                takeover.begin(goal)
        journey = takeover.journey
        if journey is None:
            return member.take_next(batches)
        return self._on_the_way(lambda: journey.fetch(batches))

    def _on_the_way(self, act: Callable[[], Any]) -> Any:
        """Where that is only tried, an error of ours says that the run must not be the rank."""
        if self.shadow.tries is None:
            return act()
        self.shadow.unwind_if_over()
        try:
            return act()
        except StateMismatch as error:
            self.shadow.refusal.fails(error)

    def end(self) -> None:
        """The script has ended."""
        self.shadow.end()

    # --- what the member knows --------------------------------------------------------------------

    @property
    def tracked(self) -> Tracked:
        """What the script has named."""
        return self.member.tracked

    @property
    def rank(self) -> Rank:
        """As which the script runs."""
        return self.member.rank

    @property
    def world_size(self) -> int:
        """Ranks in the job."""
        return self.member.world_size

    @property
    def is_shadow(self) -> bool:
        """Whether it is not live."""
        return self.member.is_shadow

    @property
    def in_step(self) -> bool:
        """Whether a step is under way, in the sandbox or live."""
        return self.member.in_step

    @property
    def declared(self) -> list[str]:
        """As in `Runtime`."""
        return self.member.declared

    def begin_loop(self, batches: Batches) -> None:
        """A loop over data begins."""
        self.member.begin_loop(batches)

    def report(self, values: dict[str, float | Tensor]) -> None:
        """Values that commit with the step; in the sandbox they go nowhere."""
        self.member.report(values)
