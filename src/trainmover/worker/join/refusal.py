# SPDX-License-Identifier: Apache-2.0
"""Why a run in the sandbox must not become the rank that it stands for.

Where the run stands as the rank stood, its script must hold what the rank's held: its graph is
restored there. What could not be had as it was refuses the run: its steps would give other numbers.
"""

import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import torch

from trainmover.errors import StateMismatch
from trainmover.graph.nodes import Graph
from trainmover.ids import Rank
from trainmover.worker.data.loops import Loops
from trainmover.worker.keep.script_graph import ScriptGraph
from trainmover.worker.program import place_of
from trainmover.worker.standing import Unwind
from trainmover.worker.step.keeper import RankRecord


class Refusal:
    """Of one run in the sandbox. Main thread only.

    why      it must not become the rank, whoever runs it; "" if it may
    elsewhere  newest record of the rank, if it was in another loop there than the run
    graph    what the rank's script held at its last fetch, once that is known
    is_trial  the run only tries the way to the rank, without its state
    """

    def __init__(self, rank: Rank, loops: Loops, script_graph: ScriptGraph) -> None:
        self.why = ""
        self.graph: Graph | None = None
        self.is_trial = False
        self.elsewhere: RankRecord | None = None
        self._is_restored = False
        self._script_graph = script_graph
        self._rank = rank
        self._loops = loops

    def foresee(self, seen: Sequence[RankRecord]) -> None:
        """Raises StateMismatch if the rank's newest record shows that the run could never stand
        where the rank does: better now than when somebody depends on it."""
        self._refuse_casts()
        if not seen:
            return
        if seen[-1].uncarried:
            self._raise(
                f"{seen[-1].uncarried} on rank {self._rank} (at {_iterating()})",
                "No other machine can have it as the rank has it.",
                "define it in a file of the script's, and keep it in a variable",
            )
        self.elsewhere = None if self._stands_in_loop_of(seen[-1]) else seen[-1]

    def _stands_in_loop_of(self, record: RankRecord) -> bool:
        """Whether a joiner would stand where this run does, without going on in the script."""
        ordinals = [place[0] for place in record.positions]
        same = len(ordinals) == 1 and ordinals == self._loops.ordinals
        return same and record.member == self._loops.member

    def restore(self) -> list[str]:
        """Have the script hold what the rank's held at this fetch. Returns what could not be had.

        Raises StateMismatch where that is not known, or the rank stood at another line.
        """
        frame = sys._getframe(1)
        if self.graph is None:
            self._raise(
                f"what the script of rank {self._rank} held at its last fetch is not to be had",
                "No other machine can have it.",
                "keep less in the script's own variables, or in tracked objects",
            )
        notes = self._script_graph.restore(self.graph, frame, has_state=not self.is_trial)
        if notes is None:
            self._raise(
                f"rank {self._rank} fetched at another line than the script here (at "
                f"{_iterating()})",
                "It stands where no other machine comes to.",
                "let the way to a fetch depend on tracked state, or on nothing",
            )
        self._is_restored = not notes
        return notes

    def check(self) -> None:
        """At the fetch where the rank stood. Raises StateMismatch if the script cannot hold what
        the rank's held: no step must count that is made with it."""
        self._refuse_casts()
        if self._is_restored and not self._unlike():
            return  # Mostly: nothing has changed since.
        if notes := self.restore() or self._unlike():
            self._raise(
                f"{notes[0]} (at {_iterating()})",
                "The script holds it itself, and this machine cannot have it as the rank had it.",
                "track the object that holds it",
            )

    def _unlike(self) -> list[str]:
        assert self.graph is not None
        return self._script_graph.unlike(self.graph, sys._getframe(2))

    def _refuse_casts(self) -> None:
        """Within torch.autocast torch keeps to what it has cast a weight to at its first use, also
        where the weight has been updated since; nobody else knows when that was."""
        if keeps_casts():
            self._raise(
                f"torch.autocast lies around the steps ({_iterating()}): within it torch goes on "
                "with weights as it has cast them first, on each machine with others",
                "It would compute with other weights on a machine that takes a rank.",
                "enter torch.autocast in the step, around the forward pass alone, or with "
                "cache_enabled=False",
            )

    def not_again(self, step: str, happened: str, instead: str) -> None:
        """Raises StateMismatch: a step that is run again would not be what it was.

        step: its name, file and line
        """
        found = f"{happened}, {instead}" if instead else happened
        self._raise(
            f"{step} would give other numbers on rank {self._rank} if it were run again, as it is "
            f"where a machine is lost in it: {found} once it has begun a second time",
            "What it changes before its update cannot be put back.",
            "change it behind optimizer.step() or between steps",
        )

    def refuse_between(self, own: RankRecord, source: RankRecord) -> None:
        """Raises StateMismatch if the rank that gives state has made another way between two steps
        than the lost one had: lines there may have changed what is tracked."""
        if (own.step, own.marks) != (source.step, source.marks):
            self._raise(
                f"rank {self._rank} was lost between two loops, which others had left or not yet "
                f"come to (at {_iterating()})",
                "What lines between them change may be changed twice, or not at all.",
                "nothing by hand: all ranks go back to a snapshot",
            )

    def fails(self, error: StateMismatch) -> NoReturn:
        """Raises it."""
        happened, do = error.happened.rstrip("."), error.do.rstrip(".")
        self._raise(f"{happened} (seen at {_iterating()})", error.means, do[0].lower() + do[1:])

    def _raise(self, happened: str, means: str, do: str) -> NoReturn:
        if self.why:  # The script has caught it, and goes on.
            raise Unwind
        self.why = f"{happened}: {do}"
        raise StateMismatch(happened, means=means, do=f"{do[0].upper()}{do[1:]}.")


def keeps_casts() -> bool:
    """Tell whether torch keeps what it casts weights to, as within torch.autocast."""
    kinds = ("cpu", "cuda") if torch.is_autocast_cache_enabled() else ()
    return any(map(torch.is_autocast_enabled, kinds))


def _iterating() -> str:
    """File and line where the script stands."""
    return place_of(traceback.extract_stack()) or "its first line"
