# SPDX-License-Identifier: Apache-2.0
"""The groups that this process has, and what it must know of those that it makes while it trains.

A joiner has run other lines than the rank whose place it takes, and a step that was broken off has
run on some ranks further than on others. See `places` for how groups meet nevertheless.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from trainmover.comm.meet.listed import Listed, listed_as_bytes
from trainmover.comm.meet.places import Meetings, place_of
from trainmover.comm.member import Member
from trainmover.errors import UserError


class Roster:
    """All groups, private ones first, in the order in which they were made.

    lock     the registry's
    lacking  places that others have and this process has not, as the last roll has told
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._members: list[Member] = []
        self._meetings = Meetings()
        self._listed: bytes | None = None
        self._told: dict[Member, tuple[str, str]] = {}
        self.forget_all()

    def forget_all(self) -> None:
        """The script's run is over."""
        self._members = []
        self._made = 0
        self._step_began: int | None = None
        self._turns: Counter[tuple[int, ...]] = Counter()
        self._numbers: dict[int, int] = {}  # Of groups that are gone: calls that they had.
        self._ended_on_the_way: dict[str, Member] | None = None
        self.lacking: set[str] = set()
        self._changed()

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members))

    def __contains__(self, member: Member) -> bool:
        return member in self._members

    def __len__(self) -> int:
        return len(self._members)

    # Groups come and go.

    def add(self, member: Member) -> None:
        """Raises UserError for a name that is taken."""
        with self._lock:
            if any((m.private, m.name) == (member.private, member.name) for m in self._members):
                raise UserError(f"group {member.name} exists already")
            if not member.private:
                member.born, self._made = self._made, self._made + 1
                self._turns[member.ranks] += 1
                member.turn = self._turns[member.ranks]
                member.number = min(self._numbers, default=len(self._of_the_script()))
                member.sequence = self._numbers.pop(member.number, 0)
            self._members.append(member)
            self._members.sort(key=lambda m: (not m.private, m.order))
            self._changed()
            member.place = place_of(member, self._members)

    def remove(self, member: Member) -> bool:
        """False if its peers are kept: see `travel`."""
        with self._lock:
            member.place, member.gone = place_of(member, self._members), True
            self._members.remove(member)
            self._changed()
            if not member.private:
                self._numbers[member.number] = member.sequence
            if self._ended_on_the_way is None:
                return True
            self._ended_on_the_way[member.place] = member
            return False

    def comes_late(self, member: Member) -> bool:
        """Whether the others have made theirs in the past: then a new group meets when it is
        called first, if it does not take over the peers of one before it."""
        with self._lock:
            lacked = member.place in self.lacking
            self.lacking.discard(member.place)
            if self._ended_on_the_way is None:
                return lacked
            before = self._ended_on_the_way.pop(member.place, None)
            if before is not None:
                member.communicator, member.watch = before.communicator, before.watch
                member.begun = before.begun
            return True

    @property
    def on_the_way(self) -> bool:
        """Between `travel` and `arrive`."""
        return self._ended_on_the_way is not None

    def travel(self) -> None:
        """From here on the script repeats what the job has done: the others have made long ago what
        it makes, and a group that it ends leaves its peers to the next one of its place."""
        with self._lock:
            self._ended_on_the_way = {}

    def arrive(self) -> None:
        """The script stands where the job does. Never blocks."""
        with self._lock:
            ended, self._ended_on_the_way = self._ended_on_the_way, None
        for member in (ended or {}).values():
            member.communicator.close()
            if member.watch is not None:
                member.watch.release()

    def _of_the_script(self) -> list[Member]:
        return [member for member in self._members if not member.private]

    # What is made from a certain moment on.

    def mark(self) -> int:
        """This moment, for `disown`."""
        return self._made

    def begin_step(self) -> int:
        """A step begins; its mark."""
        self._step_began = self._made
        return self._made

    def disown(self, mark: int) -> None:
        """The step that began with `mark` is broken off, to be made again: groups made since may be
        missing on other ranks. They count for nothing until the script uses them."""
        with self._lock:
            self._changed()
            for member in self._of_the_script():
                member.orphan = member.orphan or member.born >= mark

    def adopt(self, member: Member) -> None:
        """The script calls it: it counts, whoever made it."""
        with self._lock:
            self._changed()
            member.orphan = False

    # What goes with a rank.

    def listed(self) -> bytes:
        """The script's groups, for the rank's record. Asked for at each fetch."""
        listed = self._listed
        if listed is None:
            with self._lock:
                known = filter(_is_known, self._of_the_script())
                listed = self._listed = listed_as_bytes(map(_listed, known))
        return listed

    def stands_with(self, listed: Iterable[Listed]) -> list[Listed]:
        """This process stands where a rank stood that had these groups. Which of them are missing,
        in the rank's order. What it has beyond them counts for nothing until it is called: the rank
        has destroyed it."""
        theirs = list(listed)
        left = Counter(one.ranks for one in theirs)
        with self._lock:
            self._changed()
            for member in filter(_is_known, self._of_the_script()):
                member.orphan = left[member.ranks] == 0
                left[member.ranks] -= not member.orphan
        missing = []
        for one in reversed(theirs):
            if left[one.ranks] > 0:
                left[one.ranks] -= 1
                missing.append(one)
        return missing[::-1]

    def is_made(self, mark: int, listed: Listed) -> None:
        """What was made since `mark` is what the rank had when the epoch began."""
        with self._lock:
            for member in self._of_the_script():
                if member.born >= mark:
                    member.turn, member.made_at = 0, listed.made_at

    def told(self, member: Member) -> tuple[str, str]:
        """Its place, "" if it has none any more; and the group in words."""
        with self._lock:
            told = self._told.get(member)
            if told is None:
                here = member in self._members and _is_known(member)
                place = place_of(member, self._members) if here else ""
                words = f"the group of {in_words(member)} made at {member.made_at}"
                told = self._told[member] = place, words
            return told

    def shown(self) -> dict[str, Any]:
        """By its place, what the script holds of each group."""
        with self._lock:
            known = {self.told(m)[0]: m.shown for m in self._of_the_script() if _is_known(m)}
        held = {place: shown() for place, shown in known.items() if shown is not None}
        return {place: group for place, group in held.items() if group is not None}

    def _changed(self) -> None:
        """Groups came or went: places may be others."""
        self._listed, self._told = None, {}

    def lasting(self) -> list[Member]:
        """Private ones, and those that were there when the step under way began: a younger one may
        be gone before an epoch comes."""
        began = self._made if self._step_began is None else self._step_began
        return [m for m in self._members if m.private or m.born < began]

    # Where they meet.

    def meets(self, epoch: int, members: Iterable[Member]) -> dict[Member, str]:
        """Of each the name of its next meeting in the epoch."""
        with self._lock:
            for member in members:
                member.place = place_of(member, self._members)
            return {m: self._meetings.name(epoch, m.place) for m in members if not m.orphan}

    def have_met(self, epoch: int, names: Iterable[str]) -> None:
        """Meetings came about."""
        with self._lock:
            self._meetings.note(epoch, names)

    def begin_epoch(self) -> None:
        """What is there now has the same age everywhere."""
        with self._lock:
            self._turns.clear()
            for member in self._members:
                member.turn = 0

    def learn(self, lacking: Iterable[str]) -> None:
        """What a roll has told."""
        with self._lock:
            self.lacking = set(lacking) - {member.place for member in self._members}

    def rank(self) -> int | None:
        """This process's, in torch's numbers; None if no group knows them."""
        known = next((member for member in self._members if member.ranks), None)
        return None if known is None else known.ranks[known.seat]


def _is_known(member: Member) -> bool:
    """Whether other processes can know it: by its ranks, and because they have made it too."""
    return bool(member.ranks) and not member.orphan


def _listed(member: Member) -> Listed:
    return Listed(member.ranks, member.timeout.total_seconds(), member.made_at)


def in_words(member: Member) -> str:
    """Who is in the group."""
    more = ", ..." if len(member.ranks) > 8 else ""
    return f"ranks {', '.join(map(str, member.ranks[:8]))}{more}"
