# SPDX-License-Identifier: Apache-2.0
"""What autograd keeps with a tensor of the script's: whether it is trained, its gradient and hooks.

An attack asks a batch for its gradient (`x.requires_grad_()`, `x.grad`); a step may shift its batch
in place by what is learned, and so make it a part of the graph. A second try would add its gradient
to that of the first, or go back through the graph of the first.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from trainmover.torch_internals.modules import put_hooks, taken_hooks
from trainmover.torch_internals.tensors import is_view


class Leaves:
    """Of one step.

    keep        gets each gradient that there is already
    is_tracked  whether it is a parameter that is tracked: all of this is put back otherwise
    """

    def __init__(
        self, keep: Callable[[Tensor], None], is_tracked: Callable[[Tensor], bool]
    ) -> None:
        self._keep, self._is_tracked = keep, is_tracked
        self._plain: list[Tensor] = []  # The usual case: neither trained nor with a gradient.
        self._others: list[tuple[Tensor, bool, Tensor | None, list[Any]]] = []

    def add(self, tensor: Tensor) -> None:
        """As it is now. What is no leaf belongs to a graph, which nobody can put back."""
        is_trained = tensor.requires_grad
        if not is_trained and tensor.grad is None:
            self._plain.append(tensor)
        elif tensor.is_leaf and not self._is_tracked(tensor):
            gradient = tensor.grad
            if gradient is not None:
                self._keep(gradient)
            self._others.append((tensor, is_trained, gradient, taken_hooks(tensor)))

    def why_not(self) -> str:
        """Why they cannot be put back, "" if they can."""
        if any(not tensor.is_leaf and is_view(tensor) for tensor in self._plain):
            return "it has changed a part of a tensor in place by what is trained"
        return ""

    def put_back(self) -> None:
        """Can be done more than once. The gradients that were kept get their values elsewhere."""
        for tensor in self._plain:
            if not tensor.is_leaf:
                tensor.detach_()
            is_used = tensor.requires_grad or tensor.grad is not None
            if is_used and not self._is_tracked(tensor):
                _put(tensor, False, None, [None, None])
        for tensor, is_trained, gradient, hooks in self._others:
            if tensor.is_leaf:
                _put(tensor, is_trained, gradient, hooks)


def _put(tensor: Tensor, is_trained: bool, gradient: Tensor | None, hooks: list[Any]) -> None:
    tensor.requires_grad_(is_trained)
    put_hooks(tensor, hooks)
    tensor.grad = gradient
