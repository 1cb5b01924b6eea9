# SPDX-License-Identifier: Apache-2.0
"""Whether a move is likely to be over before a deadline, by what this job has measured. Pure."""

import statistics

from trainmover.controller.change.incidents import lately
from trainmover.controller.state import Job, Kind, Outcome


def may_be_late(job: Job, left_us: int) -> str:
    """What to say as a move begins that is to be over by then; "" if it will be, or nobody knows.

    left_us  from now to the deadline
    """
    takes_ms = usual_ms(job)
    if takes_ms is None or 1000 * takes_ms <= left_us:
        return ""
    left_s = left_us / 1e6
    moves = f"moves of this job take {takes_ms / 1000:.1f} s, and {left_s:.1f} s are left"
    return f"it may come too late: {moves}"


def usual_ms(job: Job) -> float | None:
    """How long moves of this job have taken from beginning to end, in the median."""
    known = [
        (max(one.marks.values()) - one.marks["begun"]) / 1000
        for one in lately(job)
        if one.kind is Kind.MOVE and one.outcome is Outcome.DONE
    ]
    return statistics.median(known) if known else None
