"""Buffers of a module as state of their own: data parallel ranks hold different ones.

The running mean of a batch-norm is updated from each rank's own batch, so a replica's buffers are
not the lost rank's. They are small, and part of the rank record of every step.
"""

import torch
from torch import Tensor, nn

BUFFERS_BYTES_MAX = 4 * 1024 * 1024
"""Above that a module's buffers count as replicated, like its parameters."""


class Buffers:
    """The persistent buffers of `module`, as an object with state_dict and load_state_dict."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        persistent = module.state_dict().keys()
        found = {name: b for name, b in module.named_buffers() if name in persistent}
        few = sum(buffer.nbytes for buffer in found.values()) <= BUFFERS_BYTES_MAX
        self._names = set(found) if few else set()

    def state_dict(self) -> dict[str, Tensor]:
        """Live tensors by name; {} for a module with none, or with too many bytes of them."""
        if not self._names:
            return {}
        return {name: b for name, b in self._module.named_buffers() if name in self._names}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Copy into the live tensors."""
        live = dict(self._module.named_buffers())
        with torch.no_grad():
            for name, value in state.items():
                live[name].copy_(value)
