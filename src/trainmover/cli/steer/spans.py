"""Spans of time as people write them."""

import re

from trainmover.errors import UserError

_UNITS = {"s": 1, "m": 60, "h": 3600, "": 1}


def seconds(given: str, flag: str = "--deadline") -> float:
    """Raises UserError, which names the flag.

    >>> seconds("10m"), seconds("90"), seconds("1.5h"), seconds("20 s")
    (600.0, 90.0, 5400.0, 20.0)
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smh]?)", given.strip())
    if match is None or not float(match[1]):
        raise UserError(
            f"{flag} {given} is no span of time that is yet to come.",
            means="Nothing was done.",
            do="Give seconds, minutes or hours from now: 90s, 10m, 1h.",
        )
    return float(match[1]) * _UNITS[match[2]]
