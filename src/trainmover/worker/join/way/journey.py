# SPDX-License-Identifier: Apache-2.0
"""A joiner goes the way to where its rank stood, as a traveller in the sandbox: see `way`.

Nothing of what the script calls there reaches anybody: loops that are over are passed by,
collectives were made by the job long ago.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from trainmover.comm import groups
from trainmover.errors import StateMismatch
from trainmover.ids import Step
from trainmover.state import rng
from trainmover.worker.data.batches import Batches
from trainmover.worker.join.refusal import Refusal
from trainmover.worker.join.regroup import stand_with_groups
from trainmover.worker.join.way.way import ROUNDS_MAX, Silence, Way, made_up
from trainmover.worker.member import Member


class Journey:
    """Of one joiner, from the fetch where it parked to its arrival. Main thread only.

    way      that it goes
    arrive   takes the rank's state and place: called where the rank stood, and live on return
    refusal  where the rank fetched last, the script is to hold what the rank's held
    number   that a step gives in a loop that is passed by; NaN: no step has given one here
    silence  what answers its collectives
    """

    def __init__(
        self,
        member: Member,
        way: Way,
        *,
        arrive: Callable[[], None],
        refusal: Refusal,
        number: float = float("nan"),
    ) -> None:
        self.way = way
        self.silence = Silence()
        self._member = member
        self._arrive = arrive
        self._refusal = refusal
        self._number = number
        self._rounds: WeakKeyDictionary[Batches, int] = WeakKeyDictionary()  # Of loops passed by.
        self._before_line = 0  # Fetches of the next loop to be resumed, on the way to its line.

    def begin(self) -> None:
        """From here on the script's collectives are answered here."""
        groups.tap = self.silence
        groups.roster.travel()
        groups.objects.stand_with(self.way.record.objects)

    def pass_over(self, result: Any) -> Any:
        """Make up what a step gives where this comes by. result: what one of its kind gave here"""
        member, way = self._member, self.way
        if not way.in_loops:
            raise StateMismatch(
                f"The script makes a step where rank {way.rank} had fetched a batch.",
                means="This machine cannot take the rank.",
                do="Where a script fetches must depend on tracked state, or on nothing.",
            )
        made = Step(member.calls + (way.reached > 0))
        member.calls = way.calls_at_line() if self._before_line else made
        return made_up(result, self._number)

    def fetch(self, batches: Batches) -> Any:
        """The next batch of the loop just entered; raises StopIteration if the rank had left it."""
        way, loops = self.way, self._member.loops
        if way.resumes(loops.ordinals):
            if not way.fetched_elsewhere(loops.member):
                if way.is_before_line(self._member.standing_at(), self._before_line):
                    self._before_line += 1
                    anew = way.was_begun_anew(loops.fetching.path, loops.fetching.passes)
                    return self._pass_by(batches) if anew else batches.stand_in()
                return self._resume_loop(batches)
            if loops.is_main_or(way.draws_from):
                return self._take_next(batches)
        return self._pass_by(batches)

    def _pass_by(self, batches: Batches) -> Any:
        """A round of a loop that the rank had left; raises StopIteration behind the last."""
        loop = self._member.loops.fetching
        if batches not in self._rounds:
            rounds = self.way.rounds_of(loop.path, batches.drawn, batches.rounds)
            self._rounds[batches] = rounds
            batches.drawn = max(batches.drawn, rounds - ROUNDS_MAX)
        if batches.drawn < self._rounds[batches]:
            with suppress(StopIteration):  # An empty loader: no round.
                return batches.stand_in()
        loop.ended = True
        raise StopIteration

    def _resume_loop(self, batches: Batches) -> Any:
        member, way = self._member, self.way
        record = way.record
        _, position, state, calls, before, _ = record.positions[way.reached]
        member.calls = Step(calls)
        way.reached += 1
        self._before_line = 0
        if way.in_loops:
            member.loops.resume(position, [], before)
            rng.restore(state)
            return self._take_next(batches)
        stand_with_groups(record)
        self._refusal.restore()  # What a pass is made of is among it.
        member.loops.resume(position, record.beside, before)
        member.draws.stand_at(record)
        member.tracked.load_small(record.top.small, on_the_way=True)
        rng.restore(record.top.rng)
        self._arrive()
        return member.take_next(batches)

    def _take_next(self, batches: Batches) -> Any:
        return self._member.take_unmarked(batches, self._member.standing_at())
