# SPDX-License-Identifier: Apache-2.0
"""Numbers that a script computes: the losses it calls `backward` on, and its updates."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

BACKWARD_MAX = 12
"""Calls of `backward` without an update, after which a script is taken to have no optimizer."""


class Numbers:
    """Counters of one run.

    updates  calls of an optimizer's `step`; of a script that has none, calls of `backward`
    losses   values that `backward` was called on, in hex; of larger tensors the sum
    """

    def __init__(self) -> None:
        self.updates = 0
        self.losses: list[str] = []
        self._has_optimizer = False
        self._without = 0

    def watch(self, updated: Callable[[], None]) -> Callable[[], None]:
        """Count from now on, and call `updated` before each update; returns how to stop."""

        def before_update(*_: object) -> None:
            self._has_optimizer = True
            self.updates += 1
            updated()

        handle = register_optimizer_step_pre_hook(before_update)
        plain: Any = torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            self._note(tensors)
            plain(tensors, *args, **kwargs)
            self._without += not self._has_optimizer
            if not self._has_optimizer and self._without > BACKWARD_MAX:
                self.updates += 1
                updated()

        torch.autograd.backward = backward

        def stop() -> None:
            handle.remove()
            torch.autograd.backward = plain

        return stop

    def _note(self, tensors: Tensor | Sequence[Tensor]) -> None:
        for one in [tensors] if isinstance(tensors, Tensor) else tensors:
            self.losses.append(float(one.detach().double().sum()).hex())
