# SPDX-License-Identifier: Apache-2.0
"""Where the seats of a group meet, by names that are the same in all processes.

Processes have made different groups. A joiner has those of its shadow run, and none of the steps it
passes over; a rank whose step was broken off has perhaps made one that another has not. torch's
own names count what a process has made, so they part. A group's *place* is told by its members and
by how many living groups of these members are older: "0-3#0" is the world of four ranks, "1,4#2"
the third group of ranks 1 and 4. Meetings there are numbered within an epoch, since a prefix of the
store serves once. Among processes that have come through an epoch together a group's *turn* tells
whether two that have one place are the same: how many of these members were made before it since
the epoch began.

Not every member may have the group. So before groups are brought into an epoch their processes call
the *roll*: each says which places it has, and groups meet that all their members have. One that
somebody lacks stays *apart*: it meets at the first call on it. A process that makes a group which
the others have had for long does not wait for them before that call either.

The first roll of an epoch is called in the background, while scripts go on to make and destroy
groups: a group that met may be gone before the epoch comes, and another one have its place. So the
last roll, when all stand, also asks whether every member still has what met before; if not, whoever
has that place now meets once more.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch

import trainmover
from trainmover.comm.communicator import View
from trainmover.comm.meet.meeting import Meeting
from trainmover.comm.member import Member
from trainmover.errors import ProtocolError
from trainmover.torch_internals.distributed.c10d import Store

_TIMEOUT = timedelta(minutes=30)
_LIST = "list of groups"
_ANY = -1
"""The turn of a group that stands for any that has its place."""
_NOT_THE_SCRIPT = (
    os.path.join(os.path.dirname(trainmover.__file__), ""),
    os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), ""),
)


def place_of(member: Member, members: Iterable[Member]) -> str:
    """The group's place, among those that this process has."""
    if member.private or not member.ranks:
        return member.name
    older = sum(
        other.ranks == member.ranks and other.born < member.born and not other.orphan
        for other in members
        if not other.private
    )
    return f"{_in_words(member.ranks)}#{older}"


def places_in_order(groups: Iterable[tuple[int, ...]]) -> list[str]:
    """Of groups that are told by their ranks, in the order in which they were made.

    >>> places_in_order([(0, 1), (0, 1, 2), (0, 1)])
    ['0,1#0', '0-2#0', '0,1#1']
    """
    older: Counter[tuple[int, ...]] = Counter()
    places = []
    for ranks in groups:
        places.append(f"{_in_words(ranks)}#{older[ranks]}")
        older[ranks] += 1
    return places


def _in_words(ranks: tuple[int, ...]) -> str:
    """Short for those of a mesh: "0-12/4" is 0,4,8,12."""
    step = ranks[1] - ranks[0] if len(ranks) > 2 else 0
    if step > 0 and ranks == tuple(range(ranks[0], ranks[-1] + 1, step)):
        return f"{ranks[0]}-{ranks[-1]}" + (f"/{step}" if step > 1 else "")
    return ",".join(map(str, ranks))


class Meetings:
    """How often each place was met in each epoch."""

    def __init__(self) -> None:
        self._met: dict[tuple[int, str], int] = {}

    def name(self, epoch: int, place: str) -> str:
        """Of the next meeting there."""
        return f"{place}.{self._met.get((epoch, place), 0)}"

    def note(self, epoch: int, names: Iterable[str]) -> None:
        """Those came about; what was before `epoch` is past."""
        self._met = {key: count for key, count in self._met.items() if key[0] >= epoch}
        for name in names:
            place, number = name.rsplit(".", 1)
            self._met[epoch, place] = int(number) + 1


class Roll:
    """One exchange of lists between the processes that share a group.

    topic   which one of the epoch: FIRST, which a rank may call while it trains, or LAST
    names   of the meetings that this process could go to
    settled of those that it has been at already, for this epoch, with the groups it still has. Such
            a group is in `names` too, in case it has to meet again
    joins   this process has its groups from a run of its own: they stand for any that has the place
    lacking after it: places that others have, this process among their members, and it has not
    parted  after it: groups of `settled` that some member has no longer
    """

    FIRST, LAST = "first", "last"

    def __init__(
        self,
        epoch: int,
        topic: str,
        names: Mapping[Member, str],
        settled: Mapping[Member, str] | None = None,
        *,
        joins: bool = False,
    ) -> None:
        self.epoch = epoch
        self._topic = topic
        self._names = names
        self._settled = settled or {}
        self._meeting: Meeting | None = None
        self._given_up = False
        self._joins = joins
        self.lacking: set[str] = set()
        self.parted: list[Member] = []

    def give_up(self) -> None:
        """Whoever waits in it raises Drained."""
        self._given_up = True
        if self._meeting is not None:
            self._meeting.give_up()

    def agreed(self, store: Store, me: int) -> list[Member]:
        """Groups to connect now, which all their members have, in an order that is the same for
        all.

        me  this process's rank
        Raises Drained once it is given up, PeerLost when a rank does not come.
        """
        lists = self._lists(store, me)
        whole = self._whole({me: self._settled_names(), **{r: x.settled for r, x in lists.items()}})
        stay = [member for member, name in self._settled.items() if name in whole]
        self.parted = [member for member in self._settled if member not in stay]
        have = {rank: said.meetings(whole) for rank, said in lists.items()}
        shared = [
            member
            for member, name in self._names.items()
            if member not in stay
            and _same([self._turn(member), *(have[r].get(name) for r in _others(member, me))])
        ]
        mine = {*map(_place_in, self._names.values()), *map(_place_in, self._settled.values())}
        theirs = {_place_in(name) for said in lists.values() for name in said.all()}
        self.lacking = {place for place in theirs - mine if me in _ranks_in(place)}
        return sorted(shared, key=lambda m: (not m.private, m.order if m.private else 0, m.place))

    def _turn(self, member: Member) -> int:
        return _ANY if self._joins else member.turn

    def _settled_names(self) -> dict[str, str]:
        """And where each of these groups would meet again."""
        return {name: self._names[member] for member, name in self._settled.items()}

    def _whole(self, settled: Mapping[int, Collection[str]]) -> set[str]:
        """Names in this process's list which are in those of all their ranks."""
        return {
            name
            for member, name in self._settled.items()
            if all(name in settled[rank] for rank in member.ranks)
        }

    def _lists(self, store: Store, me: int) -> dict[int, "_Said"]:
        waits = [m.timeout for m in self._names]
        view = View(self.epoch, _LIST, store, me, 0, max(waits, default=_TIMEOUT))
        self._meeting = Meeting(view)
        if self._given_up:
            self._meeting.give_up()
        turns = {
            name: self._turn(member) for member, name in self._names.items() if _others(member, me)
        }
        mine = _Said(turns, self._settled_names())
        asked = sorted({rank for member in self._names for rank in _others(member, me)})
        left = self._meeting.gather(self._topic, mine.as_json(), asked)
        return {rank: _Said.from_json(text) for rank, text in left.items()}


def _same(turns: Collection[int | None]) -> bool:
    """Whether these are one group; None: somebody has none."""
    return None not in turns and len({*turns} - {_ANY}) <= 1


@dataclass(frozen=True)
class _Said:
    """What one process says in a roll.

    turns    of the groups, by the meetings that they could go to
    settled  meetings that have been; and of each the one where its group would meet again
    """

    turns: dict[str, int]
    settled: dict[str, str]

    def meetings(self, whole: Collection[str]) -> dict[str, int]:
        """Where it would come to: not with a group that stays, since what it met is whole."""
        stay = {again for name, again in self.settled.items() if name in whole}
        return {name: turn for name, turn in self.turns.items() if name not in stay}

    def all(self) -> set[str]:
        """Every meeting that it names."""
        return {*self.turns, *self.settled}

    def as_json(self) -> str:
        return json.dumps({"turns": self.turns, "settled": self.settled})

    @staticmethod
    def from_json(left: str) -> "_Said":
        """Raises ProtocolError."""
        try:
            said = json.loads(left)
            turns = {str(name): int(turn) for name, turn in said["turns"].items()}
            settled = {str(name): str(again) for name, again in said["settled"].items()}
            return _Said(turns, settled)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ProtocolError(f"What a rank left in the store is damaged: {error}.") from error


def _others(member: Member, me: int) -> list[int]:
    return [] if member.private else [rank for rank in member.ranks if rank != me]


def _place_in(name: str) -> str:
    """Of a meeting's name."""
    return name.rsplit(".", 1)[0]


def _ranks_in(name: str) -> Collection[int]:
    """The members of a place, out of its words."""
    words = name.rsplit("#", 1)[0]
    try:
        if "-" not in words:
            return {int(rank) for rank in words.split(",")}
        span, _, step = words.partition("/")
        first, _, last = span.partition("-")
        return range(int(first), int(last) + 1, int(step or 1))
    except ValueError as error:
        raise ProtocolError(f"{name!r}, which a rank left in the store, is no place.") from error


def line_of_script() -> str:
    """The innermost line that is neither torch's nor ours; "" if there is none."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_SCRIPT):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return ""
    return f"{os.path.basename(frame.f_code.co_filename)} line {frame.f_lineno}"
