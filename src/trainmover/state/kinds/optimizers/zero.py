# SPDX-License-Identifier: Apache-2.0
"""The part of a ZeroRedundancyOptimizer that is this rank's own.

Its state_dict() is that of all ranks together and raises without a consolidation, which would cost
a collective and the memory that it saves. What a rank has to keep is its shard, the state of the
optimizer inside, and the settings of the parameter groups outside, where schedulers write (see
`settings`).
"""

import torch

from trainmover.errors import UserError
from trainmover.torch_internals.optimizers import inside_of, is_zero, updates_in_backward


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
