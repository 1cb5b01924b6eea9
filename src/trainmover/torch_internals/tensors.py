"""Tensors: whether somebody has written to one, and the part of a sharded one that is here."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

_PLAIN = {Tensor, nn.Parameter}

Mark = tuple[int, int]
"""Version counter and address of the memory: it changes when torch writes to the tensor, or the
script gives it other memory."""


def local_of(tensor: Any) -> Tensor:
    """The part in this process, as the tensor that its optimizer writes to; without autograd."""
    local: Tensor = tensor._local_tensor if hasattr(tensor, "device_mesh") else tensor
    return local


def marks(tensors: Iterable[Tensor]) -> list[Mark]:
    """Of each. What writes past torch (`.data`, numpy) leaves no mark. A DTensor counts what is
    written to it, its local part what is written to that."""
    return [
        (tensor._version, tensor.data_ptr())
        if type(tensor) in _PLAIN or not hasattr(tensor, "device_mesh")
        else (tensor._version + (part := local_of(tensor))._version, part.data_ptr())
        for tensor in tensors
    ]
