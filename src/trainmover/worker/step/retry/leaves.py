"""What autograd keeps with a tensor of the script's: whether it is trained, its gradient and hooks.

An attack asks a batch for its gradient (`x.requires_grad_()`, `x.grad`); a step may shift its batch
in place by what is learned, and so make it a part of the graph. A second try would add its gradient
to that of the first, or go back through the graph of the first.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from trainmover.torch_internals.modules import is_view, put_hooks, taken_hooks


class Leaves:
    """Of one step.

    keep        gets each gradient that there is already
    is_tracked  whether a tensor's gradient is put back otherwise
    """

    def __init__(
        self, keep: Callable[[Tensor], None], is_tracked: Callable[[Tensor], bool]
    ) -> None:
        self._keep, self._is_tracked = keep, is_tracked
        self._plain: list[Tensor] = []
        self._trained: list[tuple[Tensor, Tensor | None, list[Any]]] = []

    def add(self, tensor: Tensor) -> None:
        """As it is now. What is no leaf belongs to a graph, which nobody can put back."""
        if not tensor.requires_grad:
            self._plain.append(tensor)
        elif tensor.is_leaf and not self._is_tracked(tensor):
            if (gradient := tensor.grad) is not None:
                self._keep(gradient)
            self._trained.append((tensor, gradient, taken_hooks(tensor)))

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
            if tensor.requires_grad:
                tensor.requires_grad_(False)
                put_hooks(tensor, [None, None])
            tensor.grad = None
        for tensor, gradient, hooks in self._trained:
            if tensor.is_leaf:
                tensor.requires_grad_(True)
                put_hooks(tensor, hooks)
                tensor.grad = gradient
