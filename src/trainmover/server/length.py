# SPDX-License-Identifier: Apache-2.0
"""How many steps a job is to make, as far as anybody can know. Pure."""

import re
from itertools import pairwise

from trainmover.controller.state import Job

_FLAG = re.compile(r"--(?:(?:max|num|total|train)[-_])?(?:train[-_])?(?:steps|iters|iterations)")


def length(job: Job) -> int | None:
    """As the script's loops over batches say, or else a flag of the script like --steps 2000."""
    told = max((fact.length for fact in job.recorded.values()), default=0)
    return told or _asked_for(job.spec.argv[1:])


def _asked_for(arguments: list[str]) -> int | None:
    """
    >>> _asked_for(["--lr", "3e-4", "--max-steps", "200"]), _asked_for(["--steps=80"])
    (200, 80)
    >>> _asked_for(["--warmup-steps", "9", "--steps", "some"]) is None
    True
    """
    for flag, after in pairwise([*arguments, ""]):
        name, equals, value = flag.partition("=")
        given = value if equals else after
        if _FLAG.fullmatch(name) and given.isdecimal():
            return int(given) or None
    return None
