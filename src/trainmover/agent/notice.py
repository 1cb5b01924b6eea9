# SPDX-License-Identifier: Apache-2.0
"""A file by which whoever owns this machine says that he will take it away, and when.

It may be empty, or hold a span (`90s`, `2m`) or a moment (`2026-11-23T22:00:00Z`, alone or as the
`time` of a JSON object, as clouds tell it). Whoever writes such a file means it: one that says
something else counts as an empty one, and that is told.
"""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from trainmover.spans import seconds_of

READ_MAX = 4096


class NoticeFile:
    """usual_s: how much time it leaves where it does not say. now: the time of day."""

    def __init__(
        self,
        path: Path | None,
        usual_s: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._path = path
        self._usual_s = usual_s
        self._now = now
        self._seen: tuple[int, int] | None = None

    def look(self) -> float | None:
        """Seconds that are left, once for each time that the file was written; else None."""
        if self._path is None:
            return None
        try:
            known = self._path.stat()
            if self._seen == (known.st_mtime_ns, known.st_size):
                return None
            with self._path.open(errors="replace") as file:
                text = file.read(READ_MAX)
        except OSError:
            return None  # It is not there, or already gone.
        self._seen = known.st_mtime_ns, known.st_size
        left_s = seconds_left(text, self._usual_s, self._now())
        if left_s is None:
            print(
                f"{self._path} says no time that trainmover knows: {text[:80]!r}. It is taken as a "
                f"notice of {self._usual_s:g} s. Leave it empty, or write 90s or a moment in UTC.",
                file=sys.stderr,
            )
            return self._usual_s
        return left_s


def seconds_left(text: str, usual_s: float, now: datetime) -> float | None:
    """What the text says; None if it says something else. 0 for what is over.

    >>> now = datetime(2026, 11, 23, 22, 0, tzinfo=UTC)
    >>> [seconds_left(text, 30.0, now) for text in ("", "90", "2 m", "soon")]
    [30.0, 90.0, 120.0, None]
    >>> seconds_left('{"action": "stop", "time": "2026-11-23T22:02:00Z"}', 30.0, now)
    120.0
    """
    text = text.strip()
    if not text:
        return usual_s
    span_s = seconds_of(text)
    if span_s is not None:
        return span_s
    try:
        told = json.loads(text) if text.startswith("{") else {"time": text}
        moment = datetime.fromisoformat(told["time"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - now).total_seconds(), 0.0)
