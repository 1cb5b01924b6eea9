"""Tensors: whether somebody has written to one, the part of a sharded one that is here, and copies.

Steps ask these for many: what is asked for one tensor is torch's own, or written in C.
"""

import operator
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

version_of: Callable[[Tensor], int] = operator.attrgetter("_version")
"""How often torch has written to it. One made in inference mode has no version: RuntimeError."""

Noted = tuple["weakref.ref[Tensor]", int]
"""A tensor, without keeping it, and its version."""

copy_all: Callable[..., None] = torch._foreach_copy_
"""Into each tensor of one list what is in that of another."""

entries_in: Callable[[Tensor], int] = operator.methodcaller("_nnz")
"""How many entries a sparse tensor has."""

_PLAIN = {Tensor, nn.Parameter}

Mark = tuple[int, int]
"""Version counter and address of the memory: it changes when torch writes to the tensor, or the
script gives it other memory."""


def local_of(tensor: Any) -> Tensor:
    """The part in this process, as the tensor that its optimizer writes to; without autograd."""
    local: Tensor = tensor._local_tensor if hasattr(tensor, "device_mesh") else tensor
    return local


def note_all(tensors: Iterable[Tensor | None]) -> list[Noted | None]:
    """As they are now. Every step asks for all gradients: so no call for each."""
    return [None if t is None else (weakref.ref(t), t._version) for t in tensors]


def arrived(tensor: Any) -> Tensor:
    """The tensor, once no collective writes it any more: one of another class may have to wait."""
    here: Tensor = tensor.wait() if hasattr(tensor, "wait") else tensor
    return here


def marks(tensors: Iterable[Tensor]) -> list[Mark]:
    """Of each. What writes past torch (`.data`, numpy) leaves no mark. A DTensor counts what is
    written to it, its local part what is written to that."""
    return [
        (tensor._version, tensor.data_ptr())
        if type(tensor) in _PLAIN or not hasattr(tensor, "device_mesh")
        else (tensor._version + (part := local_of(tensor))._version, part.data_ptr())
        for tensor in tensors
    ]
