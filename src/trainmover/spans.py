# SPDX-License-Identifier: Apache-2.0
"""Spans of time as people write them: `90s`, `10m`, `1.5h`, `20`."""

import re

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smh]?)")


def seconds_of(text: str) -> float | None:
    """Seconds where no unit is given; None if the text is no span of time.

    >>> [seconds_of(text) for text in ("10m", "90", " 1.5h", "20 s", "soon", "-1")]
    [600.0, 90.0, 5400.0, 20.0, None, None]
    """
    span = _SPAN.fullmatch(text.strip())
    return float(span[1]) * _UNITS[span[2]] if span else None
