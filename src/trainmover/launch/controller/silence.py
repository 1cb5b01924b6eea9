# SPDX-License-Identifier: Apache-2.0
"""When a controller that has ended without dying is to be replaced: stopped, or stuck in its loop.

The supervisor asks it four times a second whether it is there. What counts is not the clock but how
often the supervisor itself has looked in vain: on a host that stands still, or a laptop that was
closed, it looks no more than the controller answers, so nobody is blamed for that.
"""

from pathlib import Path

LOOK_S = 0.25
STOPPED_S = 2.0
STUCK_S = 5.0
"""A loop may be at work for so long, as with a very large job."""


class Silence:
    """Of one process. Pure."""

    def __init__(self) -> None:
        self._looks = 0
        self._stopped = False

    def broken(self) -> None:
        """It has said something."""
        self._looks = 0

    def looked(self, state: str, *, expected: bool) -> str:
        """Why it is to be replaced, in words; "" if it is not, or not yet. Every LOOK_S.

        state     as `state_of` has it
        expected  whether it should have answered since; if not, only being stopped counts

        >>> silence = Silence()
        >>> [silence.looked("T", expected=True) for _ in range(8)][-1]
        'it was stopped for 2 s'
        """
        if state == "D":
            return ""  # Another one would wait for the same disk.
        stopped = state in ("T", "t")
        if stopped != self._stopped or not (stopped or expected):
            self._looks, self._stopped = 0, stopped
        self._looks += stopped or expected
        bound_s = STOPPED_S if stopped else STUCK_S
        if self._looks * LOOK_S < bound_s:
            return ""
        how = "it was stopped" if stopped else "its loop did not answer"
        return f"{how} for {bound_s:.0f} s"


def state_of(pid: int) -> str:
    """The letter of a process's state; "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
