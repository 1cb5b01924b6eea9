# SPDX-License-Identifier: Apache-2.0
"""The groups of a rank, for who takes its place.

A joiner has the groups of its shadow run, and those of the lines that it came by since. The rank
may have made others meanwhile, in lines that the joiner never runs, and some variable of the script
holds them. So where the joiner stands as the rank stood it makes those that it lacks, and stores
them where the rank's script had them. They meet the others at the first call, which waits for a
minute at most; see `comm/meet/places.py`.
"""

import torch.distributed as dist

from trainmover.comm import groups
from trainmover.comm.meet.listed import listed_in, make_missing
from trainmover.comm.meet.places import places_in_order
from trainmover.comm.shim import ShimGroup
from trainmover.graph.kinds.handle import know_handles
from trainmover.state.script import handles
from trainmover.state.script.comparison import Apart, Known
from trainmover.state.script.values import handle_entry, known_as
from trainmover.worker.step.keeper import RankRecord

_OUTSIDE = int(dist.GroupMember.NON_GROUP_MEMBER)
"""What torch gives for a group to a rank that is not in it."""


def know_groups() -> None:
    """Variables that are process groups are known by the groups' places."""
    handles.learn(ShimGroup, ShimGroup.told)
    know_handles(ShimGroup, lambda group: group.told()[0], lambda: groups.roster.shown())


def stand_with_groups(record: RankRecord) -> None:
    """This process is where the record begins: have the rank's groups. The roster is on the way."""
    make_missing(groups, listed_in(record.groups))


def own_groups() -> dict[Known, object]:
    """What this process has, as variables know it."""
    shown = groups.roster.shown()
    return {_OUTSIDE: _OUTSIDE} | {_known_by(place): group for place, group in shown.items()}


def groups_of(record: RankRecord) -> set[Known]:
    """What it will have where the record begins."""
    listed = listed_in(record.groups)
    return {_OUTSIDE, *map(_known_by, places_in_order(one.ranks for one in listed))}


def parted_groups(rank: int, source: int, record: RankRecord | None) -> Apart:
    """Tells what torch gives to each of two ranks, by one line, for a group that only one is in.

    record  of `source`
    """
    theirs = _told(record.groups) if record is not None else {}

    def apart(there: Known, here: Known) -> bool:
        if there != _OUTSIDE and rank in theirs.get(there, (rank,)):
            return False
        return here == _OUTSIDE or source not in _told(groups.roster.listed()).get(here, (source,))

    return apart


def _told(kept: bytes) -> dict[Known, tuple[int, ...]]:
    """Members of each group, by what variables know it as."""
    ranks = [one.ranks for one in listed_in(kept)]
    return {_known_by(place): ranks[n] for n, place in enumerate(places_in_order(ranks))}


def _known_by(place: str) -> Known:
    known: Known = known_as(handle_entry(place))
    return known
