# SPDX-License-Identifier: Apache-2.0
"""A joiner goes the way to where its rank stood, as a traveller in the sandbox: see `way`.

Nothing of what the script calls there reaches anybody: steps are passed over, loops that are over
passed by, collectives were made by the job long ago.
"""

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from trainmover.comm import groups
from trainmover.errors import StateMismatch
from trainmover.ids import Step
from trainmover.state import rng
from trainmover.state.script.comparison import Difference
from trainmover.state.script.counts import Count
from trainmover.state.script.things.libraries import module_of
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.inputs import hash_of
from trainmover.worker.join.refusal import Refusal
from trainmover.worker.join.regroup import stand_with_groups
from trainmover.worker.join.way.called import NotKnown, called_with
from trainmover.worker.join.way.newer_state import NewerState
from trainmover.worker.join.way.way import ROUNDS_MAX, Silence, Way, made_up
from trainmover.worker.member import Member
from trainmover.worker.step.keeper import Moment, RankRecord


class Journey:
    """Of one joiner, from the fetch where it parked to its arrival. Main thread only.

    way      that it goes
    closing  the switchover it takes part in is the last: some script has ended
    arrive   takes the rank's state and place: called where the rank stood, and live on return
    refusal  where the rank fetched last, the script's variables must be the rank's
    number   that a step gives in a loop that is passed by; NaN: no step has given one here
    silence  what answers its collectives
    """

    def __init__(
        self,
        member: Member,
        way: Way,
        *,
        closing: bool,
        arrive: Callable[[], None],
        refusal: Refusal,
        number: float = float("nan"),
    ) -> None:
        self.way = way
        self.silence = Silence()
        self._member = member
        self._closing = closing
        self._arrive = arrive
        self._refusal = refusal
        self._number = number
        self._fetched = 0  # Since its rank's place, before the first step from there.
        self._compared = False  # With its rank, behind a reserve.
        self._others: Step | None = None  # That the rank has called with other values.
        self._apart: list[Difference] = []  # As the first step since its fetch was called.
        self._rounds: WeakKeyDictionary[Batches, int] = WeakKeyDictionary()  # Of loops passed by.
        self._kept: dict[str, bytes] = {}  # Of the script's own, as steps have left it here.
        self._keeps = False  # A step was passed over in the loop that is passed by.
        self._newer: NewerState | None = None
        self._before_line = 0  # Fetches of the next loop to be resumed, on the way to its line.

    def break_off(self) -> None:
        """It does not arrive."""
        if self._newer is not None:
            self._newer.break_off()

    def end(self) -> None:
        """It has arrived. Raises StateMismatch if the script has gone on with what it must not."""
        self._member.variables.left.forget()
        if self._newer is not None:
            self._newer.arrive()

    def begin(self) -> None:
        """From here on the script's collectives are answered here."""
        groups.tap = self.silence
        tracked = self._member.tracked
        of_torch = {name for name, obj in tracked.items() if _is_torchs(type(obj))}
        states = tracked.small_states().items()
        self._kept = {
            name: state for name, state in states if name in tracked and name not in of_torch
        }
        self._member.made_of.is_open = False
        groups.roster.travel()
        groups.objects.stand_with(self.way.record.objects)

    # --- steps ------------------------------------------------------------------------------------

    @property
    def passes_over(self) -> bool:
        """Whether the step to come is no live one."""
        return self.way.in_loops or self._member.calls < self.way.committed

    def compare_inputs(self, args: Any, kwargs: Any) -> None:
        """A step is called with these: the rank has called it with the same, as far as is known."""
        self._refusal.put_back()
        if self.way.in_loops:
            return
        record = self.way.record
        step, *known = record.inputs or (0,)
        here = self._member.calls + 1
        if step == here:
            alike = known == [hash_of(args, kwargs)]
            if record.begun is not None and self.passes_over:
                self._member.tracked.load_small(record.begun.small, on_the_way=True)
                alike = alike or known == [self._hash_again()]
            self._others = None if alike else Step(step)
        if here == record.top_step and record.begun is not None and self.passes_over:
            self._apart = self._refusal.not_begun(record.begun)

    def _hash_again(self) -> int | None:
        """Of what the same call is given now that what the rank has kept was put."""
        frames = self._member.variables.frames(sys._getframe(1))
        try:
            return hash_of(*called_with(frames[-1]))
        except NotKnown:
            return None

    def begin_step(self) -> None:
        """A step that is live begins, and the run has not arrived yet: it stands where the rank
        has drawn for it. Raises StateMismatch if it was to arrive at a fetch, or if lines between
        the fetch and the step have come to other values here."""
        self._refusal.refuse(self._apart)
        if self._others is not None:
            raise StateMismatch(
                f"Step {self._others} is called with other values here than on rank "
                f"{self.way.rank}, made of what steps since the fetch have changed.",
                means="This machine cannot take the rank: it would train on other values.",
                do="Where several steps follow one fetch, keep what is made between the fetch and "
                "the first of them with job.values(...), or make it in a step.",
            )
        if self.way.onward is not None:
            raise StateMismatch(
                f"The script of rank {self.way.rank} did not come to the loop where other ranks "
                "have drawn for the next step.",
                means="This machine cannot take the rank.",
                do="Which loops a script runs must depend on tracked state, or on nothing.",
            )
        self._arrive()

    @property
    def drew(self) -> bool:
        """Whether lines behind the last step that it passed over have drawn random numbers, and
        made no collective that gives a value."""
        now = self.way.record.now
        return not self.silence.values and now is not None and rng.capture() != now.rng

    def pass_over(self, result: Any, names: Collection[str], counts: Sequence[Count]) -> Any:
        """A step that the rank has committed, or never made where this comes by: what it gave, as
        far as that is known.

        result: what one of its kind gave here. names: as in `Way.result_of`. counts: what it counts

        No step follows the last one if the script of another rank has ended: what does is live.
        """
        member, way = self._member, self.way
        if way.in_loops:
            made = Step(member.calls + (way.reached > 0))
            member.calls = way.calls_at_line() if self._before_line else made
            self._keeps = True
            return made_up(result, self._number)
        self._fetched = 0
        self._stand_behind_next_step()
        if member.calls == way.committed and self._closing:
            self._arrive()
        if way.record.raises:
            self._refusal.may_have_raised(member.calls)
        self._refusal.pass_over(counts)
        return way.given(member.calls, result, names)

    def _stand_behind_next_step(self) -> None:
        member, way = self._member, self.way
        if member.calls + 1 == way.committed:
            self._step_is_passed()
        member.calls, self.silence.values = Step(member.calls + 1), 0
        way.passes_over()
        member.draws.begin_step()
        member.draws.end_step()
        member.tracked.load_small(way.small_behind(member.calls), on_the_way=True)
        if way.record.now is not None and member.calls == way.committed:
            way.loaded = member.tracked.small_states()
            rng.restore(way.record.now.rng)

    # --- fetches ----------------------------------------------------------------------------------

    def fetch(self, batches: Batches) -> Any:
        """The next batch of the loop just entered; raises StopIteration if the rank had left it."""
        self._refusal.put_back()
        member, way = self._member, self.way
        member.variables.begin()
        loops = member.loops
        if not way.in_loops:
            if self._fills_reserve:
                self._stand_behind_next_step()
            if self._stands_behind_reserve:
                self._compared = True
                self._check_at_fetch()
            if member.calls < way.committed:
                return self._take_next(batches)  # Several fetches make a step.
            if self._ends_further:
                return self._take_next(batches)  # Or the loop is over, as its source knows.
            self._stand_at_last_fetch(way.record)
            self._refusal.refuse_kept(self._apart)
            self._arrive()
            return member.fetch(batches)
        if way.resumes(loops.ordinals):
            if not way.fetched_elsewhere(loops.member):
                if way.is_before_line(member.variables.standing_at(), self._before_line):
                    self._before_line += 1
                    anew = way.was_begun_anew(loops.fetching.path, loops.fetching.passes)
                    return self._pass_by(batches) if anew else self._made_up(batches)
                return self._resume_loop(batches)
            if loops.is_main_or(way.draws_from):
                return self._take_next(batches)  # For a step that is passed over.
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
                return self._made_up(batches)
        loop.ended = True
        if self._keeps:  # What steps count, and lines behind the loop divide by.
            self._member.tracked.load_small(self._kept, on_the_way=True)
            self._keeps = False
        raise StopIteration

    def _made_up(self, batches: Batches) -> Any:
        batch = batches.stand_in()
        self._member.variables.gave(batch)
        return batch

    def _resume_loop(self, batches: Batches) -> Any:
        member, way = self._member, self.way
        _, position, state, calls, before, _ = way.record.positions[way.reached]
        member.calls = Step(calls)
        way.reached += 1
        self._before_line = 0
        if way.in_loops:
            member.loops.resume(position, [], before)
            rng.restore(state)
            return self._take_next(batches)
        member.loops.resume(position, way.record.beside, before)
        member.draws.stand_at(way.record)
        self._fetched = 1
        stand_with_groups(way.record)
        top = way.record.top
        member.variables.stand()
        member.tracked.load_small(top.small, on_the_way=True)
        rng.restore(top.rng)
        if way.record.now is None and not self._ends_further:
            self._arrive()
            return member.take_next(batches)
        if way.record.reserve:  # Its variables are those of a later fetch.
            self._refusal.give_groups(way.record)
        else:  # Large state is that of now already.
            self._check_at_fetch()
        return self._take_next(batches)

    def _check_at_fetch(self) -> None:
        self._refusal.check(self.way.record, at_boundary=False)
        self.silence.since_fetch = 0
        self._state_is_newer()

    def _state_is_newer(self) -> None:
        """From here on nobody compares what the script makes of it, up to the last step that is
        passed over. (Where several steps follow one fetch, that is known: see `compare_inputs`.)"""
        if self._member.calls < self.way.committed and self.way.record.begun is None:
            self._newer = NewerState(self._member.tracked)
            self._newer.begin()

    def _step_is_passed(self) -> None:
        """The last one. The lines that follow find what is tracked as they should, but for what
        they change themselves: the source's has had them."""
        moved = self.way.moved
        if self._newer is None and moved:
            self._newer = NewerState(self._member.tracked)
            self._newer.begin()
        if self._newer is not None:
            self._newer.step_passed(moved)

    @property
    def _fills_reserve(self) -> bool:
        """Whether the script draws the next step's batch before it has made the step that its rank
        made between the two: here the loop has just begun, as one does in each pass, and fills its
        reserve. That step's own batch was drawn further back, and is not drawn here."""
        fetched = self._fetched
        self._fetched += fetched > 0
        each = self.way.record.each
        return fetched > 0 and each > 0 and fetched % each == 0

    @property
    def _stands_behind_reserve(self) -> bool:
        """Whether a rank that held batches in reserve fetched here last: now this run holds them
        too, and its variables can be compared. A rank lost at that fetch is compared on arrival."""
        record = self.way.record
        if self._compared or not record.reserve or record.complete:
            return False
        return self._member.calls == record.step - 2

    @property
    def _ends_further(self) -> bool:
        member, way = self._member, self.way
        if way.onward is None:
            return False
        return way.ends_further(member.loops.positions(member.calls, []), member.loops.member)

    def _take_next(self, batches: Batches) -> Any:
        """As the rank has drawn it: the same batch, with the same random numbers."""
        member, way = self._member, self.way
        to_place, at = not way.in_loops, member.variables.standing_at()
        if to_place and (state := way.rng_at_fetch()) is not None:
            rng.restore(state)
            moment = Moment(state, way.record.top.small)  # Small state: until `now` is loaded.
            member.draws.pass_by(member.place(moment, at))
        batch = member.take_unmarked(batches, at)
        if to_place:
            way.check(batches, Step(member.calls + 1))
            member.draws.note(batches)
        return batch

    def _stand_at_last_fetch(self, record: RankRecord) -> None:
        """Of a rank with batches in reserve: this is the fetch that it stood at."""
        if record.complete and record.now is not None:
            self._member.tracked.load_small(record.now.small, on_the_way=True)
            rng.restore(record.now.rng)


def _is_torchs(kind: type) -> bool:
    return module_of(kind).partition(".")[0] == "torch"
