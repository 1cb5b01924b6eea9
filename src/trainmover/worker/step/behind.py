# SPDX-License-Identifier: Apache-2.0
"""What steps change behind their gate, where a record from there does not have it.

Small state that a rank changes there (a scheduler's step, the buffers of an average of weights) is
taken from another rank, if all ranks change it alike; if each does so in its own way, steps commit
at their return (see `undo.py`). Which of them it is the next gate says: it compares what the last
step has changed, as it was before and as it had become. Until then nothing is proved, and whoever
took the rank's place with another's state might hold other numbers. So a step that changes what is
not proved ends with a record of its own, `returned`. A rank that is lost between such a step's gate
and that record is not replaced: nobody knows what it had made of its state. Others tell that the
step was such a one, or the rank's own record does, of steps before, which it has from before the
gate that proves. Where neither can, since a rank is lost there in the very first step in which it,
and no other, changes something, what it would have changed is missing.
"""

from collections.abc import Mapping

import xxhash

from trainmover.state import encode


class Behind:
    """Of one rank; main thread only.

    names   that its last step has changed there
    proved  names that all ranks change alike
    parted  as that step's gate said, ranks had parted in the step before
    drew    the last step has drawn random numbers there, or set their generators
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.proved: set[str] = set()
        self.drew = self.parted = False

    @property
    def unproved(self) -> list[str]:
        """Of `names`."""
        return [name for name in self.names if name not in self.proved]

    def look(
        self, at_gate: Mapping[str, bytes], now: Mapping[str, bytes], *, alike: bool | None
    ) -> int:
        """A step has returned. Hash of what it has changed since its gate.

        alike: whether all ranks had changed the same there in the step before, and alike, as its
        gate said; None: it was not compared
        """
        if alike:
            self.proved.update(self.names)
        self.parted = alike is False
        if self.parted:
            self.proved.clear()  # Which of them it was, nobody knows.
        self.names, changed = behind_gate(at_gate, now)
        return changed

    def stand_beside(self, names: list[str], proved: list[str], *, drew: bool) -> None:
        """A joiner's: it has what another rank knows of the last step."""
        self.names, self.drew = list(names), bool(drew)
        self.proved.update(proved)

    def forget(self) -> None:
        """The rank goes back, and makes its last steps again."""
        self.names, self.drew, self.parted = [], False, False


def behind_gate(at_gate: Mapping[str, bytes], now: Mapping[str, bytes]) -> tuple[list[str], int]:
    """Names of small state that a step has changed, and a hash of it as it was before and as it has
    become: equal on all ranks if all have changed the same alike."""
    if at_gate == now:
        return [], 0
    names = [name for name, state in now.items() if at_gate.get(name, state) != state]
    if not names:
        return names, 0
    changes = [[name, at_gate.get(name, b""), now[name]] for name in names]
    return names, xxhash.xxh3_64_intdigest(encode.encode(changes)) >> 1
