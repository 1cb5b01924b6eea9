# SPDX-License-Identifier: Apache-2.0
"""Groups that a joiner lacks, since it does not come by the lines of the script that made them.

The record of a rank lists the groups that it had at its fetch. Who stands there in its place makes
those that it lacks, in the same order, so that each has the place by which the others know it (see
`places`); it meets the others at the first call. Which of them the script's variables are follows
from the variables' names for them: see `state/script/handles.py`.
"""

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import torch.distributed as dist

from trainmover.errors import ProtocolError

if TYPE_CHECKING:
    from trainmover.comm.groups import Groups


class Listed(NamedTuple):
    """One group of a rank. made_at: file and line of the script."""

    ranks: tuple[int, ...]
    timeout_s: float
    made_at: str


def listed_as_bytes(listed: Iterable[Listed]) -> bytes:
    """For a record."""
    return json.dumps(list(listed)).encode()


def listed_in(kept: bytes) -> list[Listed]:
    """Out of a record. Raises ProtocolError."""
    try:
        return [
            Listed(tuple(map(int, ranks)), float(timeout_s), str(made_at))
            for ranks, timeout_s, made_at in json.loads(kept or b"[]")
        ]
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"The groups in a rank's record are damaged: {error}.") from error


def make_missing(groups: "Groups", listed: Iterable[Listed]) -> None:
    """Make those that this process lacks. Blocks for nobody: the roster must be on the way."""
    for one in groups.roster.stands_with(listed):
        mark = groups.roster.mark()
        timeout = timedelta(seconds=one.timeout_s)
        dist.new_group(list(one.ranks), timeout=timeout, backend="gloo")
        groups.roster.is_made(mark, one)
