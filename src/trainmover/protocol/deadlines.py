# SPDX-License-Identifier: Apache-2.0
"""How long who is waited for: the deadlines of machines and the controller, all of them. Pure.

    quiet   nothing was heard of a machine: others are asked for it, nothing follows yet
    away    so it stays, or its link has ended: its ranks train on, and it may return
    lost    there is evidence (`server.absence`), or its patience is over

`trainmover status --json` shows them. The patience is a flag: `run --patience`.
"""

import math
from typing import Any

import msgspec

BEAT_S = 0.2
"""Agents say so often that they are there; so often the controller looks."""
QUIET_S = 0.4
AWAY_S = 1.0
HELD_UP_S = 1.0
"""No step was committed for so long, and for twice as long as usual: ranks stand still."""
HELD_UP_FIRST_S = 10.0
"""So it is where it is not known yet how long steps take."""
ANSWER_S = 0.5
"""A vault that is dialled has said its first bytes by then, or was not reached: two and a half
times there and back, where that takes a fifth of a second."""
TOGETHER_S = 0.4
"""Who falls silent so much later than another may have been lost with it: they are one loss."""
SPARE_S = 3.0
"""A machine without ranks that nobody reaches for so long is given up; so is a joiner that keeps
a change waiting, if another can take its place. A successor's first look takes as long."""
HEARD_S = 1.0
"""The controller says something to every agent at least so often."""
SILENT_S = 6.0
"""An agent that hears nothing of the controller for so long dials anew. A controller that answers
nobody for 5 s is replaced: agents need not dial one that is only busy."""
PATIENCE_S = 60.0
"""So long an agent goes on alone, its lease, and a machine may be away: longer than any blip."""
RELAYS_ABOVE = 256
"""Machines; of more, some carry what others say. 0: none ever does."""
LANE_SILENT_S = 1.2
"""A machine that hears nothing over its lane for so long dials the controller beside it."""
FALL_BACK_S = 3.0
"""So much more time to return has who was behind a relay: that may be all that has failed."""
LEASE_MORE_S = 5.0
"""The controller's patience is longer by so much: processes have ended when it is over."""

STOP_SEEN_S = 2.0
"""A process that gets SIGTERM outlives it for so long: whoever stops a run may send it to every
process, and those that the run is made of hear of the stop a moment later."""
STOP_S = 15.0
"""It outlives it for so long if the run is being stopped: a last checkpoint and its end."""


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Those that the controller judges machines by, in seconds, as the constants above; worlds of
    the simulator have others."""

    quiet_s: float = QUIET_S
    away_s: float = AWAY_S
    held_up_s: float = HELD_UP_S
    held_up_first_s: float = HELD_UP_FIRST_S
    answer_s: float = ANSWER_S
    together_s: float = TOGETHER_S
    spare_s: float = SPARE_S
    heard_s: float = HEARD_S
    silent_s: float = SILENT_S
    fall_back_s: float = FALL_BACK_S
    lease_more_s: float = LEASE_MORE_S


def least_patience_s(deadlines: Deadlines) -> float:
    """Return the shortest patience that the other deadlines leave sense in.

    An agent must have the time to find its link silent and to dial again, and the controller the
    time to find out who reaches a machine, before either gives the other up.

    >>> least_patience_s(Deadlines())
    12.0
    """
    returns_s = deadlines.silent_s + deadlines.spare_s
    judged_s = deadlines.held_up_first_s + deadlines.answer_s + deadlines.away_s
    return max(returns_s + deadlines.fall_back_s, math.ceil(judged_s))


def beats(seconds: float) -> int:
    """In looks of the controller: what it did not look at, since it stood itself, does not count.

    >>> beats(AWAY_S)
    5
    """
    return round(seconds / BEAT_S)


def deadlines_json(deadlines: Deadlines, patience_s: float) -> dict[str, Any]:
    """Return what people see, in seconds."""
    return {
        "quiet_s": deadlines.quiet_s,
        "away_s": deadlines.away_s,
        "held_up_s": deadlines.held_up_s,
        "answer_s": deadlines.answer_s,
        "together_s": deadlines.together_s,
        "spare_s": deadlines.spare_s,
        "agent_dials_anew_s": deadlines.silent_s,
        "lane_silent_s": LANE_SILENT_S,
        "fall_back_s": deadlines.fall_back_s,
        "lease_s": patience_s,
        "patience_s": patience_s + deadlines.lease_more_s,
    }
