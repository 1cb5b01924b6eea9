# SPDX-License-Identifier: Apache-2.0
"""The groups of a rank, for who takes its place.

A joiner has the groups of its shadow run, and those of the lines that it came by since. The rank
may have made others meanwhile, in lines that the joiner never runs, and some variable of the script
holds them. So where the joiner stands as the rank stood it makes those that it lacks, and stores
them where the rank's script had them. They meet the others at the first call, which waits for a
minute at most; see `comm/meet/places.py`.
"""

from trainmover.comm import groups
from trainmover.comm.meet.listed import listed_in, make_missing
from trainmover.comm.shim import ShimGroup
from trainmover.graph.kinds.handle import know_handles
from trainmover.worker.step.keeper import RankRecord


def know_groups() -> None:
    """Have graphs carry process groups by the groups' places."""
    know_handles(ShimGroup, lambda group: group.told()[0], lambda: groups.roster.shown())


def stand_with_groups(record: RankRecord) -> None:
    """This process is where the record begins: have the rank's groups. The roster is on the way."""
    make_missing(groups, listed_in(record.groups))
