# SPDX-License-Identifier: Apache-2.0
"""Rates of bytes, as people write them."""

import re

from trainmover.errors import UserError

LEAST_BYTES_S = 1_000_000
_UNITS = {"": 1.0, "b": 1.0, "bit": 1 / 8}
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def bytes_a_second(given: str, flag: str) -> int:
    """Return the bytes a second of 500MB/s, 1.5GiB/s or 10Gbit/s; 0 for "". Raises UserError.

    >>> bytes_a_second("500MB/s", "--rate"), bytes_a_second("10Gbit/s", "--rate")
    (500000000, 1250000000)
    """
    if not given:
        return 0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?i?)(b|bit|)(/s)?", given.lower())
    if match is None or match[2] not in _PREFIXES:
        raise _no_rate(f"{flag} {given} is not a rate")
    bytes_s = int(float(match[1]) * _PREFIXES[match[2]] * _UNITS[match[3]])
    if bytes_s < LEAST_BYTES_S:
        raise _no_rate(f"{flag} {given} is less than 1MB/s")
    return bytes_s


def _no_rate(happened: str) -> UserError:
    return UserError(
        f"{happened}.",
        means="Nothing was started.",
        do="Write it as 500MB/s, 1.5GiB/s or 10Gbit/s; leave it away for no limit.",
    )
