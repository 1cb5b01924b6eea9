# SPDX-License-Identifier: Apache-2.0
"""Parts of what decides, each alone on a course of which the truth is known.

A world has room for minutes, and for few of the histories that a part can have. On a course one
part is told what it would be told in hours of some job, made by the seed; what it is to say follows
from how that was made, and it says this and nothing else.
"""

import random
from collections.abc import Callable

from courses.change import (
    beginnings,
    buddies,
    dead_ends,
    endings,
    goings_back,
    losses,
    moves,
    recoveries,
    restarts,
    resuming,
)
from courses.compare import parted, rounds
from courses.facts import hearsay, ranks, rows, values
from courses.keep import back, cuts, keeping, last, saving
from courses.policies import (
    asked,
    beats,
    figures,
    fleet,
    health,
    plans,
    signs,
    stops,
    stragglers,
)
from courses.standby import (
    chosen,
    comings,
    joining,
    processes,
    readiness,
    records,
)
from courses.standstill import lateness, watched, ways
from trainmover.simulator.happenings import Violation

COURSES: dict[str, Callable[[random.Random], None]] = {
    "fleet": fleet.play,
    "beats": beats.play,
    "rounds": rounds.play,
    "rows": rows.play,
    "cuts": cuts.play,
    "values": values.play,
    "standstill": watched.play,
    "plans": plans.play,
    "beginnings": beginnings.play,
    "losses": losses.play,
    "recoveries": recoveries.play,
    "moves": moves.play,
    "dead_ends": dead_ends.play,
    "goings_back": goings_back.play,
    "resuming": resuming.play,
    "endings": endings.play,
    "restarts": restarts.play,
    "buddies": buddies.play,
    "stragglers": stragglers.play,
    "health": health.play,
    "figures": figures.play,
    "keeping": keeping.play,
    "readiness": readiness.play,
    "saving": saving.play,
    "ranks": ranks.play,
    "processes": processes.play,
    "joining": joining.play,
    "asked": asked.play,
    "stops": stops.play,
    "chosen": chosen.play,
    "records": records.play,
    "signs": signs.play,
    "comings": comings.play,
    "hearsay": hearsay.play,
    "ways": ways.play,
    "last": last.play,
    "lateness": lateness.play,
    "parted": parted.play,
    "back": back.play,
}
SELDOM = {"fleet": 4, "beats": 2, "rows": 2}
"""One seed in so many has that course: they take longer."""


def wrong_in(seed: int, only: str = "") -> str:
    """What is wrong on the courses of this seed, or on that one; "" if all is well."""
    for name, play in COURSES.items():
        if name == only or (not only and seed % SELDOM.get(name, 1) == 0):
            try:
                play(random.Random(f"{name} {seed}"))
            except Violation as violation:
                return f"{name}: {violation.what}"
    return ""
