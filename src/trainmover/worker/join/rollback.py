# SPDX-License-Identifier: Apache-2.0
"""Rollback in place: a live rank goes back to its snapshot in the loop where its script stands.

    told to go back     `Unwind` leaves the script; where it comes to a `for` that fetched last, as
                        it asked for its next item, that loop goes on (`loops.turns.goes_on`)
    its next fetch      the rank leaves its place and is bound again as a joiner would be, takes the
                        snapshot and the script's graph, and trains on

It takes what a switchover takes. Where the script stands in another pass or another loop than in
the snapshot, the script is left, and run again in the sandbox (`worker/runs.py`); where it turns
out only then that the snapshot does not fit, in a fresh process.
"""

import dis
import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NamedTuple

from trainmover.comm import groups
from trainmover.errors import StateMismatch
from trainmover.loops.place import loop_at
from trainmover.loops.turns import Loop, PlainLoop
from trainmover.protocol.messages import Bind, Parked
from trainmover.sandbox.process.overlay import Overlay
from trainmover.state.arrangement import Arrangement, check
from trainmover.state.encode import decode
from trainmover.worker.join.refusal import Refusal, keeps_casts
from trainmover.worker.join.taken import in_header
from trainmover.worker.join.takeover import Takeover
from trainmover.worker.member import Member
from trainmover.worker.standing import Unwind
from trainmover.worker.step.keeper import RankRecord

_ASKS_FOR_NEXT = dis.opmap["FOR_ITER"]


class Orders(NamedTuple):
    """How a rank leaves its place and is bound again.

    leave   says that it has left; returns what binds it again, or None for other work
    joins   has the control thread know the joiner that it has become
    """

    leave: Callable[[Member], Bind | None]
    joins: Callable[["InPlace"], None]


class InPlace:
    """Stand-in for a run in the sandbox: the run is live, and becomes a joiner where it stands.

    failed  why it cannot; ""
    """

    is_only_held = False
    failed = ""

    def __init__(self, member: Member, run: int, token: bytes) -> None:
        self.member, self.run = member, run
        self.number = float("nan")
        self.overlay = Overlay()
        self.refusal = Refusal(member.rank, member.loops, member.script_graph)
        self.takeover = Takeover(self, token)
        self.rank, self.shadow = member.rank, self

    def trace(self) -> str:
        """Return the trace of the first steps, which all runs of the rank have in common."""
        return self.member.recording.first_trace


class _NextFetch:
    """Iterator of a loop that goes on, for one turn: nothing but a rollback may come of it."""

    def __init__(self, loop: Any, went_back: Callable[[], bool]) -> None:
        self._loop, self._below, self._went_back = loop, loop.iterator, went_back

    def __iter__(self) -> "_NextFetch":
        return self

    def __next__(self) -> Any:
        self._loop.iterator = self._below
        try:
            item = next(self._below)
        except StopIteration:
            if self._went_back():
                raise
        else:
            if self._went_back():
                return item
        raise Unwind  # An item that is none of a rollback's, or the loop's end.


class Rollback:
    """Rollbacks of one rank. Main thread only."""

    def __init__(self, member: Member, orders: Orders, token: bytes) -> None:
        self._member, self._orders, self._token = member, orders, token
        self._fetched: dict[int, int] = {}
        self._went_back = False

    def fetches(self, frame: FrameType) -> None:
        """Note where the script stands at the fetch that is about to be made."""
        outer: FrameType | None = frame
        self._fetched = {}
        while outer is not None:
            self._fetched[id(outer)] = outer.f_lasti
            outer = outer.f_back

    def goes_on(self, frame: FrameType, line: int) -> bool:
        """Have a loop go on if its header has fetched last: for a rollback, and nothing else.

        line  of its header. False: it does not
        """
        at, code = self._fetched.get(id(frame), -1), frame.f_code
        if not self.is_due or at < 0 or code.co_code[at] != _ASKS_FOR_NEXT:
            return False
        loop = loop_at(frame, line)
        lines = (of for begin, end, of in code.co_lines() if begin <= at < end)
        if not isinstance(loop, Loop | PlainLoop) or next(lines, None) != line:
            return False
        self._went_back = False
        loop.iterator = _NextFetch(loop, lambda: self._went_back)
        return True

    @property
    def is_due(self) -> bool:
        """Whether this rank goes back, as far as it knows."""
        member = self._member
        is_live = not member.is_shadow and not member.over and member.recording.recorder is None
        return is_live and member.standing.goes_back

    def go_back(self, frame: FrameType) -> bool:
        """Have the rank stand at this fetch as in its snapshot, live. False: it stood elsewhere.

        frame: the script's innermost one. Raises Unwind if the script is to be left.
        """
        if not (self.is_due and self._stands_there(frame)):
            return False
        member = self._member
        member.snapshots.finish()
        bind = self._orders.leave(member)
        if bind is None:
            raise Unwind
        self._join(bind)
        self._went_back = True
        return True

    def _stands_there(self, frame: FrameType) -> bool:
        member = self._member
        snapshot = member.snapshots.newest(member.rank)
        if snapshot is None or not snapshot.is_whole:
            return False
        header = decode(snapshot.header)
        record, graph = in_header(header)
        if graph is None or keeps_casts() or record.groups != groups.roster.listed():
            return False
        if record.uncarried or member.script_graph.uncarried:  # Nor can this process put it back.
            return False
        if not self._is_in_loops_of(record) or not self._is_arranged_as(header):
            return False
        return member.script_graph.stands_at(graph, frame)

    def _is_in_loops_of(self, record: RankRecord) -> bool:
        loops = self._member.loops
        ordinals = [place[0] for place in record.positions]
        is_there = len(ordinals) == 1 and ordinals == loops.ordinals
        return is_there and record.member == loops.member

    def _is_arranged_as(self, header: dict[str, Any]) -> bool:
        theirs, tracked = Arrangement(*header["arranged"]), self._member.tracked
        mine = tracked.arrangement(theirs.moved)
        with suppress(StateMismatch):
            check(theirs, mine, mine)
            return tracked.fits(header["bulk"])
        return False

    def _join(self, bind: Bind) -> None:
        member = self._member
        member.is_shadow = True
        member.begin_anew()
        place = InPlace(member, bind.run, self._token)
        takeover = place.takeover
        takeover.broken_off = member.ledger
        self._orders.joins(place)
        try:
            takeover.stand()
            parked = Parked(rank=member.rank, epoch=bind.epoch, trace=place.trace(), bind_ms=0)
            member.say(parked)
            takeover.begin(bind.epoch)
            member.updates.changes.loaded(member.tracked)
        except StateMismatch as error:
            place.failed = error.happened
            raise Unwind from error
        except Exception as error:
            place.failed = _of_ours(error)
            raise Unwind from error
        if takeover.journey is not None:
            place.failed = "the snapshot is of another place in the script"
            raise Unwind


def _of_ours(error: Exception) -> str:
    """Return an error that only trainmover can have made: the script is not run meanwhile."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(at.filename)} line {at.lineno}"
    return f"{type(error).__name__}: {error} (at {where}; please report it)"
