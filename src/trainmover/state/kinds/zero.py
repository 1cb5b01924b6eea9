"""The part of a ZeroRedundancyOptimizer that is this rank's own.

Its state_dict() is that of all ranks together and raises without a consolidation, which would cost
a collective and the memory that it saves. What a rank has to keep is its shard, the state of the
optimizer inside, and the settings of the parameter groups outside, where schedulers write.
"""

from typing import Any

import torch

from trainmover.errors import StateMismatch, UserError
from trainmover.torch_internals.optimizers import inside_of, is_zero, updates_in_backward


class Settings:
    """Of an optimizer's parameter groups, whatever is not a parameter; with the state methods."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        """Live values."""
        return {
            "groups": [
                {key: value for key, value in group.items() if key != "params"}
                for group in self.optimizer.param_groups
            ]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set them. On its way to a later step a rank may have groups already that it had not
        then: they stay as they are. Raises StateMismatch if it is the other way round."""
        groups, given = self.optimizer.param_groups, state["groups"]
        if len(given) > len(groups):
            raise StateMismatch(
                f"The source has set {len(given)} parameter groups of a ZeroRedundancyOptimizer, "
                f"there are {len(groups)} here.",
                means="This process cannot take the rank: it built something else.",
                do="A script must build the same objects for a rank wherever it runs.",
            )
        for group, settings in zip(groups, given, strict=False):
            group.update(settings)


def shard_of(obj: object) -> torch.optim.Optimizer | None:
    """The optimizer inside, if `obj` is a ZeroRedundancyOptimizer.

    Raises UserError for one that updates while gradients are still on their way.
    """
    if not is_zero(obj):
        return None
    if updates_in_backward(obj):
        raise UserError(
            "A ZeroRedundancyOptimizer with overlap_with_ddp=True cannot be tracked.",
            means="It updates parameters inside of backward(): such a step cannot be undone.",
            do="Build it without overlap_with_ddp and call its step() behind backward().",
        )
    return inside_of(obj)
