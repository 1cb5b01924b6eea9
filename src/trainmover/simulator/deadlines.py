# SPDX-License-Identifier: Apache-2.0
"""Deadlines of the job in a world: what they are, and how a seed draws others. Pure.

An outage is drawn against the deadlines that it touches (`faults.BITES`): both move together.
Deadlines of which `spec.deadlines` knows nothing are as the code has them.
"""

import random
from typing import Any

import msgspec

from trainmover.controller.standstill.hanging import ALL_US, END_US, STOPPED_US
from trainmover.controller.standstill.lateness import LEAVES_US
from trainmover.controller.standstill.probing import ANSWER_US
from trainmover.protocol import deadlines
from trainmover.protocol.messages import JobSpec

SECOND_US = 1_000_000
DRAWN = {
    "together_s": deadlines.TOGETHER_S,
    "quiet_s": deadlines.QUIET_S,
    "answer_s": deadlines.ANSWER_S,
    "away_s": deadlines.AWAY_S,
    "held_up_s": deadlines.HELD_UP_S,
    "heard_s": deadlines.HEARD_S,
    "spare_s": deadlines.SPARE_S,
    "fall_back_s": deadlines.FALL_BACK_S,
    "lease_more_s": deadlines.LEASE_MORE_S,
    "silent_s": deadlines.SILENT_S,
    "held_up_first_s": deadlines.HELD_UP_FIRST_S,
}
"""Those that a seed may draw anew, the shortest first."""
FIXED = {
    "stopped_s": STOPPED_US / SECOND_US,
    "end_s": END_US / SECOND_US,
    "probe_s": ANSWER_US / SECOND_US,
    "all_stand_s": ALL_US / SECOND_US,
    "leaves_s": LEAVES_US / SECOND_US,
}
FACTORS = (0.5, 3.0)


def draw(chance: random.Random) -> dict[str, float]:
    """Return other deadlines, each by a factor of its own; their order stays.

    >>> drawn = draw(random.Random(1))
    >>> list(drawn.values()) == sorted(drawn.values())
    True
    """
    drawn = sorted(usual * chance.uniform(*FACTORS) for usual in DRAWN.values())
    return {name: round(seconds, 1) for name, seconds in zip(DRAWN, drawn, strict=True)}


def with_deadlines(spec: JobSpec, drawn: dict[str, float] | None) -> JobSpec:
    """Return the spec with these deadlines, if it has a field for them, and a patience above."""
    kind: Any = getattr(deadlines, "Deadlines", None)
    if not drawn or kind is None or "deadlines" not in spec.__struct_fields__:
        return spec
    known = kind(**{name: its for name, its in drawn.items() if name in kind.__struct_fields__})
    least_s = getattr(deadlines, "least_patience_s", lambda _: 0.0)(known)
    patience_s = max(spec.patience_s, least_s)
    return msgspec.structs.replace(spec, patience_s=patience_s, **{"deadlines": known})


def seconds(spec: JobSpec, name: str) -> float:
    """Return how long the deadline is in this job."""
    if name in ("patience_s", "wait_s"):
        return float(getattr(spec, name))
    usual = FIXED[name] if name in FIXED else DRAWN[name]
    return float(getattr(getattr(spec, "deadlines", None), name, usual))
