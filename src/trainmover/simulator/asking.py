# SPDX-License-Identifier: Apache-2.0
"""What people may ask a job for at any moment: what can be done, and what cannot."""

import random
from collections.abc import Callable
from typing import Any

from trainmover.controller.events import (
    REQUESTS,
    CordonRequested,
    DrainRequested,
    HealthRequested,
    KillRequested,
    MoveRequested,
    PlaceRequested,
    PlanSteered,
    RollRequested,
    UncordonRequested,
)
from trainmover.controller.state import Job

NOBODY = "m99"
MINUTE_US = 60_000_000


def anything(job: Job, chance: random.Random, request: str, at_us: int) -> REQUESTS:
    """Somebody asks for it. Nobody is told to die by that who is there."""
    asked: dict[str, Any] = {"at_us": at_us, "request": request}
    reason = chance.choice(("", "its fan"))
    some = _names(job, chance)
    one = some[0] if some else NOBODY
    ways: list[Callable[[], REQUESTS]] = [
        lambda: MoveRequested(**asked, machine=one, reason=reason),
        lambda: KillRequested(**asked, machine=NOBODY),
        lambda: CordonRequested(**asked, machine=one, reason=reason),
        lambda: UncordonRequested(**asked, machine=one),
        lambda: HealthRequested(**asked, machine=one),
        lambda: DrainRequested(
            **asked,
            machines=some,
            reason=reason,
            until_us=at_us + chance.choice((-at_us, 0, 1, MINUTE_US)),
        ),
        lambda: RollRequested(
            **asked, machines=some[: chance.randrange(3)], at_once=chance.randrange(3)
        ),
        lambda: PlaceRequested(**asked, seats=_seats(job, chance), reason=reason),
        lambda: PlanSteered(**asked, going=chance.random() < 0.5, reason=reason),
    ]
    return chance.choice(ways)()


def _names(job: Job, chance: random.Random) -> list[str]:
    """Up to three: of machines with ranks or of any, now and then of none, or one twice."""
    known = sorted(job.machines if chance.random() < 0.5 else job.seats)
    some = chance.sample(known, min(len(known), chance.randrange(4)))
    odd = chance.random()
    if odd < 0.15:
        some.append(NOBODY)  # type: ignore[arg-type]
    elif odd < 0.3 and some:
        some.append(some[0])
    return [*some]


def _seats(job: Job, chance: random.Random) -> list[str]:
    """As they are, but for two: exchanged, or one of them another machine, or one too many."""
    seats: list[str] = [*job.seats]
    others = [*sorted(job.machines.keys() - {*job.seats}), NOBODY, *seats]
    place = chance.randrange(len(seats))
    match chance.randrange(4):
        case 0:
            seats[place], seats[0] = seats[0], seats[place]
        case 1:
            seats.append(chance.choice(others))
        case _:
            seats[place] = chance.choice(others)
    return seats
