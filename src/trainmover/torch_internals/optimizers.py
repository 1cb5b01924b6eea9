# SPDX-License-Identifier: Apache-2.0
"""What optimizers, and the scaler of their gradients, know beside their state_dict()."""

import sys
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler


def stages_of(scaler: GradScaler) -> dict[int, dict[str, Any]]:
    """By optimizer, whether its gradients are unscaled and it has stepped. Live, of one that
    scales; one that is not enabled has none."""
    return scaler._per_optimizer_states if scaler.is_enabled() else {}


def is_zero(obj: object) -> bool:
    """Whether it is a ZeroRedundancyOptimizer: only a script loads what makes one."""
    loaded = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    return loaded is not None and isinstance(obj, loaded.ZeroRedundancyOptimizer)


def updates_in_backward(zero: Any) -> bool:
    """Whether a ZeroRedundancyOptimizer was built with overlap_with_ddp=True."""
    return bool(zero._overlap_with_ddp)


def inside_of(zero: Any) -> torch.optim.Optimizer:
    """The optimizer that updates this rank's shard."""
    inside: torch.optim.Optimizer = zero.optim
    return inside
