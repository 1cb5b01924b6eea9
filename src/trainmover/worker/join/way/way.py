# SPDX-License-Identifier: Apache-2.0
"""The way from the fetch where a joiner parks to the fetch where its rank stood.

The joiner parks at some fetch; the rank may have stood in another loop. Then the script runs on,
still in the sandbox: loops that are over are passed by, those the rank was in go on where it
fetched last.

A loop that is passed by has as many rounds as the rank had, since the lines behind it may count on
what rounds leave: a name that is bound in its body, how the next loop is made. Nothing is loaded or
computed for them: the batch is the same in all, the number that a step gives is the last that was
made here. Both are made up, and so is what the script makes of them: where the joiner arrives, all
that the script holds becomes what the rank's held.

The rank may have fetched in another line than the loop's first fetch is in, as where a script draws
the first batch of a pass before a `while` loop, and the others in it. To that line, too, the joiner
goes with what is made up.
"""

from typing import Any

import torch
from torch import Tensor

from trainmover.comm import objects
from trainmover.comm.calls.arguments import blank, gathers, gives_a_value
from trainmover.comm.calls.tap import Call
from trainmover.errors import StateMismatch
from trainmover.ids import Rank, Step
from trainmover.torch_internals.trees import tree_map
from trainmover.worker.data import rounds
from trainmover.worker.step.keeper import RankRecord

ROUNDS_MAX = 256
"""Of a loop that is passed by: of a longer one the newest."""


class Way:
    """Where `record` leads to, and how far a joiner has come.

    reached    of the loops the rank was in, how many have been resumed
    """

    def __init__(self, rank: Rank, record: RankRecord) -> None:
        self.rank = rank
        self.record = record
        self.reached = 0

    @property
    def in_loops(self) -> bool:
        """Whether some loop that the rank was in has not been resumed yet."""
        return self.reached < len(self.record.positions)

    def leads_on_from(self, ordinals: list[int], member: list[int], at: list[int]) -> bool:
        """Whether the rank stood elsewhere than at this very fetch.

        member: path of the loop that fetches, if it is beside the loops the script is in
        at: as in `is_before_line`
        """
        here = len(ordinals) == 1 and ordinals == [place[0] for place in self.record.positions]
        return not (here and member == self.record.member) or self.is_before_line(at)

    def is_before_line(self, at: list[int], passed: int = 0) -> bool:
        """Whether the loop to be resumed had fetched, and fetched last in another line than it does
        here, to which the script may come yet.

        at: instructions at which its frames stand. passed: fetches of that loop so far
        """
        _, position, *_, there = self.record.positions[self.reached]
        return bool(at != there) and passed < min(position.get("drawn", 0), ROUNDS_MAX)

    def was_begun_anew(self, path: list[int], passes: int) -> bool:
        """Whether the rank had begun this loop anew since, beside others: here it is to end first.

        passes: that have gone before here
        """
        main, beside = self.record.positions[-1][1], self.record.beside
        position = next((place for one, place in beside if one == path), main)
        return bool(passes < position["before"])

    def calls_at_line(self) -> Step:
        """Steps made before the fetch there."""
        return Step(self.record.positions[self.reached][3])

    def resumes(self, ordinals: list[int]) -> bool:
        """Whether the innermost of these loops is the next that the rank was in.

        If not, it was over. Raises StateMismatch if the script has passed by where the rank stood.
        """
        depth = len(ordinals) - 1
        if depth > self.reached:
            return False
        target = self.record.positions[depth][0]
        if depth == self.reached and ordinals[depth] <= target:
            return bool(ordinals[depth] == target)
        raise StateMismatch(
            f"The script of rank {self.rank} did not come to the loop where the rank had been.",
            means="This machine cannot take the rank.",
            do="Which loops a script runs must depend on tracked state, or on nothing.",
        )

    def rounds_of(self, path: list[int], drawn: int, whole: int | None) -> int:
        """How many rounds a loop is to have that the rank had left.

        drawn  batches that it has given here
        whole  rounds of one that is not left early; None: not known
        """
        depth = len(path) - 1
        reached = [place[0] for place in self.record.positions[: self.reached]]
        if self.in_loops and path[:depth] == reached:
            target, _, _, _, before, _ = self.record.positions[depth]
            if (known := rounds.of(path[depth], before, target)) != rounds.UNKNOWN:
                return known
        return drawn or (1 if whole is None else whole)

    def fetched_elsewhere(self, member: list[int]) -> bool:
        """Whether the rank, in the loops that have been reached, fetched from another one.

        Of loops around others the last fetch is what leads on: those are no `member`.
        """
        innermost = self.reached == len(self.record.positions) - 1
        return member != (self.record.member if innermost else [])

    def draws_from(self, path: list[int]) -> bool:
        """Whether the rank was drawing from this loop, beside the one where it stood."""
        return any(path == place[0] for place in self.record.beside)


def made_up(result: Any, number: float) -> Any:
    """Return what a step gives in a round that is passed by, of the kind of `result`: a number, or
    NaN."""
    if isinstance(result, Tensor) and result.numel() == 1 and result.is_floating_point():
        return torch.full(result.shape, number, dtype=result.dtype)
    if isinstance(result, float):
        return number

    def unknown(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return torch.full(leaf.shape, float("nan"), dtype=leaf.dtype)
        if isinstance(leaf, Tensor):
            return torch.zeros(leaf.shape, dtype=leaf.dtype)
        return float("nan") if isinstance(leaf, float) else leaf

    return tree_map(unknown, result)


class Silence:
    """The tap of a joiner on its way: what it calls, the job has called long ago.

    values  calls that gave a value, which is nowhere any more
    """

    def __init__(self) -> None:
        self.values = 0

    @torch.no_grad()
    def serve(self, call: Call) -> bool:
        """What is gathered is this rank's own, as if all had given the same. Other outputs stay as
        they are, but for sizes of objects, which torch leaves unset for others to fill."""
        if gathers(call.op):
            _give_back(call)
        elif not _gives(call) and objects.under_way():
            blank(call.outputs)
        self.values += gives_a_value(call.op)
        return True

    def done(self, call: Call) -> None:
        """Never called."""


class Ended(Silence):
    """The tap of a joiner whose rank was lost behind its last step, while other ranks' scripts have
    ended: what it calls there they have called too, or never will."""

    def serve(self, call: Call) -> bool:
        """Raises StateMismatch for a call that gives a value."""
        super().serve(call)
        if not self.values:
            return True
        raise StateMismatch(
            f"The script makes a collective ({call.op}) behind its last step, and the machine that "
            "had made it is lost.",
            means="What it gave is gone: scripts of other ranks have ended.",
            do="Make such collectives in the last step, or on each rank before it lets others end.",
        )


def _give_back(call: Call) -> None:
    for place, output in enumerate(call.outputs):
        own = call.inputs[place % len(call.inputs)]
        if own.dtype == output.dtype and own.numel() and output.numel() % own.numel() == 0:
            times = output.numel() // own.numel()
            output.copy_(own.reshape(-1).repeat(times).view(output.shape))


def _gives(call: Call) -> bool:
    """Whether others have of it what this seat gives them."""
    root = call.meta[2]
    return call.op == "send" or (call.op == "broadcast" and root == call.seat)
