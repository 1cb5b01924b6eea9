# SPDX-License-Identifier: Apache-2.0
"""What a script does behind its last step, done once more by who has taken a rank there.

The state that it takes may be of a rank whose script has been through those lines already. Lines
that leave tracked state as it is, or come to the same again, are harmless. Others are done to a
state that has had them, which nobody could see in the numbers: then this is no end of that rank.
"""

from trainmover.errors import StateMismatch
from trainmover.ids import Step
from trainmover.state.tracked import Tracked


class Tail:
    """From the arrival of a joiner behind its rank's last step to the script's end.

    gate_small  small state at the gate of that step: what is another on arrival is the source's
    """

    def __init__(self, step: Step, tracked: Tracked, gate_small: dict[str, bytes]) -> None:
        self._step = step
        self._tracked = tracked
        small = tracked.small_states()
        self._small = {name: small[name] for name in small if small[name] != gate_small.get(name)}
        self._shared = tracked.replica_digest()

    def check(self) -> None:
        """Raises StateMismatch if the script has changed what came from another rank."""
        small, now = self._tracked.small_states(), self._tracked.replica_digest()
        changed = [name for name in self._small if small.get(name) != self._small[name]]
        if now.whole != self._shared.whole:
            before = self._shared.tensors
            parts = [path for path in now.tensors if now.tensors[path] != before.get(path)]
            changed = parts + changed
            changed = changed or ["tracked state"]
        if not changed:
            return
        named = ", ".join(f"`{name}`" for name in changed[:3])
        raise StateMismatch(
            f"The script changes {named} behind its last step {self._step}, and a rank was lost "
            "there.",
            means="Who took its place has the state of a rank that may have made that change "
            "already, and would have made it twice.",
            do="Make such changes in the last step, or in one of their own (@job.step).",
        )
