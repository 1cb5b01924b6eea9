# SPDX-License-Identifier: Apache-2.0
"""How far a GradScaler is with each optimizer: its gradients are unscaled, it has stepped.

This is in no state_dict(), and mostly over by the end of a step. A script that unscales in one step
and updates in the next relies on it; and a step that ended at its gate leaves it half way.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler, OptState

from trainmover.torch_internals.optimizers import stages_of

_STAGE, _FOUND = "stage", "found_inf_per_device"


class Stages:
    """Of one scaler that scales, with the two state methods.

    optimizers  the tracked ones, in the same order in every process: of others it tells nothing
    """

    def __init__(
        self, scaler: GradScaler, optimizers: Callable[[], Sequence[torch.optim.Optimizer]]
    ) -> None:
        self.scaler = scaler
        self._optimizers = optimizers

    def state_dict(self) -> dict[int, dict[str, Any]]:
        """By the number of the optimizer; values of their own."""
        known = stages_of(self.scaler)
        if not known:
            return {}
        found = {}
        for number, optimizer in enumerate(self._optimizers()):
            if (one := known.get(id(optimizer))) is not None:
                devices = {str(device): inf.clone() for device, inf in one[_FOUND].items()}
                found[number] = {**one, _STAGE: one[_STAGE].value, _FOUND: devices}
        return found

    def load_state_dict(self, state: dict[int, dict[str, Any]]) -> None:
        """Be as far with the tracked optimizers."""
        known, optimizers = stages_of(self.scaler), self._optimizers()
        known.clear()
        for number, one in state.items():
            devices = {
                torch.device(device): _on(device, inf) for device, inf in one[_FOUND].items()
            }
            stage = OptState(one[_STAGE])
            known[id(optimizers[number])] = {**one, _STAGE: stage, _FOUND: devices}


def _on(device: str, inf: Tensor) -> Tensor:
    return inf.to(device, copy=True)
