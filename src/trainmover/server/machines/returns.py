# SPDX-License-Identifier: Apache-2.0
"""How the machines come back to a controller that has taken over. Pure."""

from trainmover.protocol.deadlines import beats


class Returns:
    """expected: how many machines there were; since_us: when there was no controller any more;
    within_s: they dial at least every half second."""

    def __init__(self, expected: int, since_us: int, within_s: float) -> None:
        self._expected = expected
        self._since_us = since_us
        self._beats_left = beats(within_s)
        self._gone = 0
        self._told = False

    def beat(self) -> bool:
        """Whether it is told now how many are not back yet."""
        self._beats_left -= 1
        return self._beats_left <= 0

    def ended(self, machines: int) -> None:
        """So many of them will not come back."""
        self._gone += machines

    def sentence(self, away: int, now_us: int) -> str:
        """To be told now; "" if it is not the moment. Once only."""
        if self._told or (away and self._beats_left > 0):
            return ""
        self._told = True
        back = self._expected - self._gone - away
        took_ms = (now_us - self._since_us) / 1000
        return (
            f"the controller was restarted; {back} of {self._expected} machines are back "
            f"after {took_ms:.0f} ms"
        )
