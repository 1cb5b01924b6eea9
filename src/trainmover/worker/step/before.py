# SPDX-License-Identifier: Apache-2.0
"""State that a second try of a step needs beside the graph of what the script holds: random
numbers, and what lies in C++ or in FSDP2. The graph puts back the rest (`keep/script_graph.py`).
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from trainmover.state import rng
from trainmover.state.kinds.modules.registered import registered
from trainmover.state.kinds.parallel.unsharded import Unsharded
from trainmover.state.moments import Moment
from trainmover.state.tracked import Tracked


@dataclass
class Before:
    """State as a step begins.

    rng_state  of the generators of the process
    small      encoded states of small objects, and of what lies beside tracked ones
    unsharded  gradients that FSDP2 keeps to itself
    layers     how many modules had been given by then, and which are tracked: a layer that is made
               when it is first needed is made once
    """

    rng_state: bytes
    small: dict[str, bytes]
    unsharded: list[tuple[Unsharded, dict[str, Any], dict[str, Tensor]]]
    layers: tuple[int, list[nn.Module]]

    @staticmethod
    def take(tracked: Tracked) -> "Before":
        """Copy it."""
        return Before(
            rng.capture(),
            tracked.small_states(Moment.RETRY),
            [(part, part.state_dict(), _clones(part)) for part in tracked.unsharded],
            (registered.layers, tracked.modules),
        )

    def why_not(self) -> str:
        """Return why the step cannot be made again, for people; "": it can."""
        if registered.given_since(*self.layers):
            return "it has given the model a layer, and those it begins with are drawn once"
        return ""

    def restore(self, tracked: Tracked) -> None:
        """Put it back, before the graph: what lies in C++ is compared with attributes that the
        aborted try has left. Raises StateMismatch where an object does not take its state."""
        rng.restore(self.rng_state)
        tracked.load_small(self.small)
        for part, state, values in self.unsharded:
            part.load_state_dict(state)
            part.set_values({name: value.clone() for name, value in values.items()})


def _clones(part: Unsharded) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in part.values().items()}
