# SPDX-License-Identifier: Apache-2.0
"""Spans of time that flags give."""

from trainmover.errors import UserError
from trainmover.spans import seconds_of


def seconds(given: str, flag: str = "--deadline") -> float:
    """Return the seconds, more than 0. Raises UserError, which names the flag."""
    span_s = seconds_of(given)
    if not span_s:
        raise UserError(
            f"{flag} {given} is no span of time that is yet to come.",
            means="Nothing was done.",
            do="Give seconds, minutes or hours from now: 90s, 10m, 1h.",
        )
    return span_s
