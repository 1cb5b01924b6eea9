# SPDX-License-Identifier: Apache-2.0
"""End of a run, for commands that look on until then."""

import threading
import time
from contextlib import suppress
from typing import Any

from trainmover.cli.client import Client
from trainmover.errors import TrainmoverError

LAST_PULSE_S = 2.0


def ending(code: int | None, because: str) -> str:
    """
    >>> ending(0, "")
    'the run has ended: every rank ran its script to the end'
    >>> ending(130, "stopped by SIGINT")
    'the run has ended with exit status 130: stopped by SIGINT'
    """
    if code:
        return f"the run has ended with exit status {code}: {because}"
    return f"the run has ended: {because or 'every rank ran its script to the end'}"


class EndWatcher:
    """Thread that reads a run's pulses, of which the last says how the job has ended."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._last: dict[str, Any] = {}
        self._heard_s = time.time()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Return how the run has ended, or since when nothing is known of it. Call it when the run
        no longer answers."""
        self._thread.join(LAST_PULSE_S)
        code = self._last.get("code")
        if code is not None:
            return ending(code, self._last["ended_because"])
        since = time.strftime("%H:%M:%S", time.localtime(self._heard_s))
        return f"no contact with the run since {since}: it has probably ended"

    def _read(self) -> None:
        with suppress(TrainmoverError):
            for pulse in self._client.pulses():
                self._last, self._heard_s = pulse, time.time()
