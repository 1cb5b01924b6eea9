# SPDX-License-Identifier: Apache-2.0
"""Deadlines in force, and ranks that stand, as JSON values. Pure."""

from typing import Any

from trainmover.controller.standstill.stuck import Standstill
from trainmover.controller.state import Job
from trainmover.ids import Rank
from trainmover.server.view.progress import Progress


def watch_json(job: Job, progress: Progress, now_us: int) -> list[dict[str, Any]]:
    """A row for every rank that has said how long it may stand; none where nobody looks.

    deadline_s  None: it may stand as long as it likes; why is in `paused`
    """
    stands = {r: one for r, one in job.hanging.stands.items() if one.fact.epoch == job.epoch}
    return [
        {
            "rank": rank,
            "deadline_s": told.deadline_ms / 1000.0 if told.deadline_ms else None,
            "paused": told.paused,
            "stands": _stands(stands.get(rank), now_us),
        }
        for rank, told in sorted(progress.watched.items())
    ]


def _stands(one: Standstill | None, now_us: int) -> dict[str, Any] | None:
    if one is None:
        return None
    fact = one.fact
    return {
        "since_s": max(0, now_us - one.since_us) / 1e6,
        "step": fact.step,
        "where": fact.where,
        "what": fact.call or fact.place,
    }


def stands_text(rank: Rank, where: str, what: str, still_s: float, step: int) -> str:
    """One rank that stands, in a sentence.

    >>> stands_text(2, "script", "train.py line 33", 4.1, 7)
    'rank 2 has stood for 4.1 s in step 7: in the script (train.py line 33)'
    """
    place = {"call": "in a call of a group", "script": "in the script", "fetch": "at a fetch"}
    told = f" ({what})" if what else ""
    where = place.get(where, "in trainmover")
    return f"rank {rank} has stood for {still_s:.1f} s in step {step}: {where}{told}"
