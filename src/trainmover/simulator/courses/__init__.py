"""Parts of what decides, each alone on a course of which the truth is known.

A world has room for minutes, and for few of the histories that a part can have. On a course one
part is told what it would be told in hours of some job, made by the seed; what it is to say follows
from how that was made, and it says this and nothing else.
"""

import random
from collections.abc import Callable

from trainmover.simulator.courses import beats, fleet
from trainmover.simulator.happenings import Violation

COURSES: dict[str, Callable[[random.Random], None]] = {
    "fleet": fleet.play,
    "beats": beats.play,
}


def wrong_in(seed: int) -> str:
    """What is wrong on the course of this seed; "" if all is well."""
    names = [*COURSES]
    name = names[seed % len(names)]
    try:
        COURSES[name](random.Random(f"{name} {seed}"))
    except Violation as violation:
        return f"{name}: {violation.what}"
    return ""
