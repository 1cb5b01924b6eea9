# SPDX-License-Identifier: Apache-2.0
"""Why a run in the sandbox must not become the rank that it stands for.

What the script keeps in its own variables no other machine has: where the run stands as the rank
stood they must be the same, or its steps would give other numbers. Nor has any other what an
iterator around job.batches keeps of the batches before.
"""

import inspect
import os
import sys
from collections.abc import Mapping, Sequence, Set
from types import FrameType
from typing import NoReturn

import torch

from trainmover.errors import StateMismatch
from trainmover.graph.nodes import Graph
from trainmover.ids import Rank, Step
from trainmover.state.script.brief import left_alone, made_of
from trainmover.state.script.comparison import (
    Apart,
    Captured,
    Difference,
    advice,
    decoded,
    elsewhere,
    never_apart,
    path_of,
    sentence,
)
from trainmover.state.script.counts import Count
from trainmover.state.script.values import NO_VALUE, Entry, same
from trainmover.state.script.variables import Variables
from trainmover.worker.data.loops import Loops
from trainmover.worker.join.lookout import Foresight
from trainmover.worker.join.regroup import own_groups
from trainmover.worker.keep.script_graph import ScriptGraph
from trainmover.worker.standing import Unwind
from trainmover.worker.step.keeper import Begun, RankRecord


class Refusal:
    """Of one run in the sandbox. Main thread only.

    why      it must not become the rank, whoever runs it; "" if it may
    stood, stood_at  the script's variables where the run parked, and which instructions that were
    history, apart  of the source: see `Comparison.begun`
    parted   keys of variables that steps store to, and have been another there
    elsewhere  newest record of the rank, if it was in another loop there than the run
    graph    what the rank's script held at its last fetch, once that is known
    is_trial  the run only tries the way to the rank, without its state
    """

    def __init__(
        self, rank: Rank, variables: Variables, loops: Loops, script_graph: ScriptGraph
    ) -> None:
        self.why = ""
        self.graph: Graph | None = None
        self.is_trial = False
        self._script_graph = script_graph
        self.stood = b""
        self.stood_at: list[int] = []
        self.history: Sequence[bytes] = ()
        self.apart: Apart = never_apart
        self.parted: Set[str] = frozenset()
        self.elsewhere: RankRecord | None = None
        self._counted = set[str]()  # By the step that was passed over last.
        self._theirs: Captured | None = None  # The rank's, at that fetch.
        self._at_fetch = b""
        self._rank = rank
        self._variables = variables
        self._loops = loops
        self._foresight = Foresight(variables, loops, self._own)

    def foresee(self, seen: Sequence[RankRecord]) -> None:
        """Raises StateMismatch if the rank's newest records show that the run could never stand
        where the rank does: better now than when somebody depends on it."""
        self._refuse_casts()
        if seen and seen[-1].uncarried:
            self._raise(
                f"{seen[-1].uncarried} on rank {self._rank} "
                f"(at {_iterating(self._variables.frames(sys._getframe(1)))})",
                "No other machine can have it as the rank has it.",
                "define it in a file of the script's, and keep it in a variable",
            )
        self.refuse(self._foresight.differences(seen))
        if seen:
            self.elsewhere = self._foresight.elsewhere(seen[-1])

    def give_groups(self, record: RankRecord) -> None:
        """To variables that held such on the rank: this process's own."""
        self._variables.give(record.variables, own_groups())

    def check(self, record: RankRecord, *, at_boundary: bool) -> None:
        """At the fetch where the rank stood. Raises StateMismatch if a variable of the script is
        another here than there, and cannot be put as it was there: no step must count that is made
        with it."""
        self._refuse_casts()
        is_restored = self._restore()
        self.give_groups(record)
        if not at_boundary:
            self._variables.look_again()
        if is_restored:
            self.refuse(self._variables.comparison.on_stacks(record.variables, self._own()))
        else:
            self._compare(record.variables, at_boundary=at_boundary)
        if record.variables:
            self._theirs, self._at_fetch = decoded(record.variables), record.variables
            if not is_restored:
                self._put_brief(self._theirs.brief, self._own())
                self._variables.put_away(self._theirs.brief, with_locals=True)
        if not at_boundary:
            if record.blind:
                self._raise(
                    f"the last step of rank {self._rank} has changed `{record.blind}`, which is "
                    "gone with it",
                    "This machine cannot take the rank at its last step.",
                    "track the object that holds it",
                )
            self._variables.left.stand(sys._getframe(1))

    def _compare(self, theirs: bytes, *, at_boundary: bool) -> None:
        own = self._own()
        if theirs and not self._variables.goes_on_as(theirs):
            self.refuse([elsewhere(theirs, own)])
        batches = self._loops.main.batches()
        ended = batches is not None and batches.at_end
        differences = self._variables.comparison.differences
        self.refuse(differences(theirs, own, ended=ended, at_boundary=at_boundary))

    def _restore(self) -> bool:
        """Have the script hold what the rank's held at this fetch. False if that is not known, or
        the rank stood at another line. Raises StateMismatch for what could not be had."""
        if self.graph is None:
            return False
        frame = sys._getframe(1)
        notes = self._script_graph.restore(self.graph, frame, has_state=not self.is_trial)
        if notes is None:
            return False
        if not notes:
            notes = self._script_graph.unlike(self.graph, frame)
        if notes:
            self._raise(
                f"{notes[0]} (at {_iterating(self._variables.frames(frame))})",
                "The script holds it itself, and this machine cannot have it as the rank had it.",
                "track the object that holds it",
            )
        return True

    def pass_over(self, counts: Sequence[Count]) -> None:
        """A step that the rank has made is passed over: what it left in variables is gone, but for
        what it counts, if it is the same on all ranks."""
        known = set[str]()
        for one in counts:
            keys = self._variables.counted([one])
            if keys and keys.isdisjoint(self.parted):
                one.go_on()
                known |= keys
        self._counted = known
        written = self._variables.written_in_steps(
            [self.stood, self._at_fetch], [self._at_fetch, *self.history]
        )
        self._variables.left.put_away(sys._getframe(1), written, known)

    def put_back(self) -> None:
        """The lines behind it have run."""
        self._variables.left.put_back(sys._getframe(1))

    def not_begun(self, begun: Begun) -> list[Difference]:
        """Where the script calls a step as the rank did: what lines since the fetch have made
        another of, if that is known. Small state is as the rank had it here."""
        own = self._variables.capture_at_step(full=True) if begun.variables else b""
        return self._variables.comparison.differences(begun.variables, own, at_boundary=False)

    def check_begun(self, *, asked: bool, asked_since_fetch: bool) -> None:
        """Behind a step that the rank has committed and that was passed over here. Raises
        StateMismatch if it was the first on the source to change a variable: see
        `Comparison.begun`.

        asked: as in `check_left`. asked_since_fetch: lines before the step have, too
        """
        self._refuse_casts()
        self._variables.look_again()
        own = self._own()
        if asked_since_fetch:
            self._refuse_asked(own)
        summed = set() if asked else self._variables.summed
        begun, by_lines = self._variables.comparison.begun, self._by_lines(own)
        made_here = set() if asked else by_lines
        self.refuse(begun(self.history, own, self.apart, summed, made_here))
        self.refuse(
            self._variables.comparison.of_rank(
                self._at_fetch,
                self.stood,
                self.history,
                own,
                in_steps=self._variables.in_steps,
                parted=self.parted,
                but=summed,
            )
        )
        if self._theirs is not None and not asked:
            by_both = self._variables.comparison.by_both
            stores = self._variables.in_steps
            but = summed | self._counted
            self.refuse(by_both(self._theirs.found, self.history, own, stores, but))
        if self._theirs is not None and self.history and all(self.history):
            before, now = (decoded(one).brief for one in self.history[-2:])
            known = made_of(self._theirs.brief, before, now)
            self._put_brief(known, own)
            self._variables.put_away({*known, *left_alone(before, now)}, with_locals=False)

    def _refuse_asked(self, own: bytes) -> None:
        """Raises StateMismatch if lines since the fetch, which have made collectives, have made of
        a variable what it is nowhere else."""
        if self._theirs is None:
            return
        found = self._variables.comparison.asked(self._theirs.found, self.history, own)
        if found:
            self._raise(
                sentence(self._rank, found),
                "Lines between the steps have made collectives since, and what those gave is gone "
                "with the machine.",
                "make such collectives in the step, or keep what comes of them with "
                "job.values(...)",
            )

    def _by_lines(self, own: bytes) -> set[str]:
        """What lines since the fetch have changed here, and steps do not, for all that is known.
        The step itself has not run here."""
        if self._theirs is None:
            return set()
        then, now = self._theirs.found, decoded(own).found
        changed = {
            key
            for key in then.keys() & now.keys() - self._variables.left.changed
            if NO_VALUE not in (then[key], now[key]) and not same(then[key], now[key])
        }
        return {key for key in changed if not self._variables.in_steps(path_of(key))}

    def check_left(self, *, asked: bool) -> None:
        """Behind a loop that the source has left, where it stands now. Raises StateMismatch if the
        lines since its last step have made something else of a variable there.

        asked: they have made collectives, whose values nobody has here
        """
        own = self._own()
        self.refuse(self._variables.comparison.left(self.history, own, self.apart, asked=asked))

    def _put_brief(self, theirs: Mapping[str, Entry], own: bytes) -> None:
        tracked = self._theirs.tracked if self._theirs is not None else []
        self._variables.put_brief(theirs, tracked, own, [self.stood, own], self.history)

    def _own(self) -> bytes:
        return self._variables.capture(full=True)

    def _refuse_casts(self) -> None:
        """Within torch.autocast torch keeps to what it has cast a weight to at its first use, also
        where the weight has been updated since; nobody else knows when that was."""
        if keeps_casts():
            at = _iterating(self._variables.frames(sys._getframe(1)))
            self._raise(
                f"torch.autocast lies around the steps ({at}): within it torch goes on with "
                "weights as it has cast them first, on each machine with those of another step",
                "It would compute with other weights on a machine that takes a rank.",
                "enter torch.autocast in the step, around the forward pass alone, or with "
                "cache_enabled=False",
            )

    def refuse(self, differences: list[Difference]) -> None:
        """Raises StateMismatch if there are such."""
        if differences:
            self._raise(
                sentence(self._rank, differences),
                "The script keeps them itself, so no other machine has them.",
                advice(differences),
            )

    def refuse_kept(self, differences: list[Difference]) -> None:
        """At a fetch behind the step before which they were found: raises StateMismatch if there
        are such of what is still compared here."""
        if differences:
            kept = self._variables.comparison.names_in(self._own())
            self.refuse([one for one in differences if one.name in kept])

    def not_again(self, step: str, happened: str, instead: str) -> None:
        """Raises StateMismatch: a step that is run again would not be what it was.

        step: its name, file and line
        """
        found = f"{happened}, {instead}" if instead else happened
        self._raise(
            f"{step} would give other numbers on rank {self._rank} if it were run again, as it is "
            f"where a machine is lost in it: {found} once it has begun a second time",
            "What it changes before its update cannot be put back.",
            "change it behind optimizer.step() or between steps, or keep it with job.values(...)",
        )

    def draws_as_its_loader(self, step: str) -> None:
        """Raises StateMismatch: see `loader_draws`. step: as above"""
        self._raise(
            f"{step} draws random numbers on rank {self._rank} from a generator that its loader "
            "draws from, too: what it had drawn is lost where a machine is lost behind its update",
            "The next pass would be shuffled otherwise.",
            "give the loader a generator of its own, or keep this one with job.track(...)",
        )

    def may_have_raised(self, step: Step) -> NoReturn:
        """Raises StateMismatch: what runs behind the step that is passed over nobody knows."""
        at = _iterating(self._variables.frames(sys._getframe(1)))
        self._raise(
            f"steps of rank {self._rank} raise exceptions behind their update, and nobody knows "
            f"whether step {step} did, which was lost with its machine (at {at})",
            "Other lines of the script would run here than ran on the rank.",
            "return what happened, or raise it before optimizer.step()",
        )

    def fails(self, error: StateMismatch) -> NoReturn:
        """Raises it."""
        happened, do = error.happened.rstrip("."), error.do.rstrip(".")
        at = _iterating(self._variables.frames(sys._getframe(1)))
        self._raise(f"{happened} (seen at {at})", error.means, do[0].lower() + do[1:])

    def _raise(self, happened: str, means: str, do: str) -> NoReturn:
        if self.why:  # The script has caught it, and goes on.
            raise Unwind
        self.why = f"{happened}: {do}"
        raise StateMismatch(happened, means=means, do=f"{do[0].upper()}{do[1:]}.")


def keeps_casts() -> bool:
    """Tell whether torch keeps what it casts weights to, as within torch.autocast."""
    kinds = ("cpu", "cuda") if torch.is_autocast_cache_enabled() else ()
    return any(map(torch.is_autocast_enabled, kinds))


def _iterating(frames: list[FrameType]) -> str:
    """The line with the loop: of the innermost frame that is no generator's, which is fed by it."""
    plain = [one for one in frames if not one.f_code.co_flags & inspect.CO_GENERATOR]
    frame = (plain or frames)[-1]
    return f"{os.path.basename(frame.f_code.co_filename)} line {frame.f_lineno}"
