# SPDX-License-Identifier: Apache-2.0
"""DTensor: what it keeps for the whole process."""

from typing import Any

import torch


def forget_plans() -> None:
    """How tensors are to be laid out, which it plans once for each mesh; and where its random
    numbers stand: making that is a broadcast, in every run."""
    from torch.distributed.tensor import DTensor, _random

    kept: Any = DTensor
    kept._op_dispatcher.sharding_propagator.propagate_op_sharding.cache_clear()
    torch._C._clear_DTensor_sharding_propagator_cache()
    _random._rng_tracker = None
