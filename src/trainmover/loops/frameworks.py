# SPDX-License-Identifier: Apache-2.0
"""Modules of frameworks that hold training loops, and are rewritten like a script's own.

Accelerate has none: its users write their loops themselves.
"""

TRAINING_MODULES = frozenset(
    {
        "transformers.trainer",
        "lightning.pytorch.loops.fit_loop",
        "lightning.pytorch.loops.training_epoch_loop",
        "pytorch_lightning.loops.fit_loop",
        "pytorch_lightning.loops.training_epoch_loop",
        "torchtitan.trainer",
    }
)
