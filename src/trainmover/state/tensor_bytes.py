# SPDX-License-Identifier: Apache-2.0
"""The bytes of a tensor: read without a copy where that is possible, and put back.

All bytes are in logical order (as `contiguous()` would lay them out), so that two tensors with
equal values have equal bytes whatever their strides, storage or device are.
"""

import ctypes
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trainmover.torch_internals.tensors import coordinates_of, values_of

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and not re.match(r"torch\.q", str(dtype))
}
"""Every dtype whose values are plain bytes, by name. Quantized ones carry scales beside them."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}  # torch takes long to name one.


def dtype_name(dtype: torch.dtype) -> str:
    return _NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def is_plain(tensor: Tensor) -> bool:
    """Whether the tensor is nothing but shape, dtype and bytes (no sparse, nested, meta...)."""
    return (
        tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and tensor.dtype in _NAMES
        and not tensor.is_nested
    )


def size_of(tensor: Tensor) -> int:
    """Bytes of what it holds; a sparse one has no `nbytes`, but parts that do."""
    if tensor.layout == torch.strided:
        return tensor.nbytes
    if tensor.layout == torch.sparse_coo:
        return coordinates_of(tensor).nbytes + values_of(tensor).nbytes
    return tensor.values().nbytes  # Of rows or columns, as good as all of it.


def extent_of(tensor: Tensor) -> tuple[int, int] | None:
    """Addresses at which it begins and ends; None: it lies nowhere, or nobody can tell."""
    try:
        start = tensor.data_ptr()
    except (NotImplementedError, RuntimeError):  # As of a sparse one, which has several.
        return None
    if not start or not tensor.numel():
        return None
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return start, start + (1 + sum((size - 1) * step for size, step in steps)) * tensor.itemsize


def flat_bytes(tensor: Tensor) -> Tensor:
    """The tensor's bytes as a 1-d uint8 tensor on the same device.

    Shares the storage of a contiguous tensor: writing to the result writes to the tensor. For any
    other layout it is a copy.
    """
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    flat = plain.reshape(-1)
    if flat.numel() == 1:  # Of one element any stride counts as contiguous.
        flat = flat.as_strided((1,), (1,))
    return flat.view(torch.uint8)


def shares_bytes(tensor: Tensor) -> bool:
    """Whether `flat_bytes` gives the tensor's own storage on the CPU instead of a copy."""
    return (
        tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def view_bytes(tensor: Tensor) -> memoryview:
    """Bytes in logical order, which can be written to; no copy for a contiguous CPU tensor.

    Not by `numpy()`: it makes a storage such that it can never be resized again, and the tensor is
    mostly the script's. FSDP2 frees parameters by that. Raises RuntimeError for one that is freed.
    """
    flat = flat_bytes(tensor).cpu()
    if not flat.numel():
        return memoryview(bytearray())
    if not flat.data_ptr():
        raise RuntimeError("the memory of this tensor is freed")
    held: Any = (ctypes.c_char * flat.numel()).from_address(flat.data_ptr())
    held.kept = flat  # For as long as the view lives.
    return memoryview(held).cast("B")


def memory_of(tensor: Tensor) -> "ctypes.Array[ctypes.c_char] | None":
    """The same bytes where they lie, in a few calls; None where they do not, in one piece and in
    order, or there are none. Unlike a view it does not keep them: the tensor must outlive it."""
    if (
        type(tensor) is not Tensor
        or not tensor.is_cpu
        or tensor.layout is not torch.strided
        or tensor.dtype not in _NAMES
        or not tensor.is_contiguous()
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        return None
    address = tensor.data_ptr()
    return (ctypes.c_char * tensor.nbytes).from_address(address) if address else None


def from_bytes(data: memoryview, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """A new CPU tensor that owns its storage. Raises ValueError if the sizes do not fit."""
    elements = 1
    for extent in shape:
        if extent < 0:
            raise ValueError(f"negative extent in shape {shape}")
        elements *= extent
    if elements * dtype.itemsize != len(data):
        raise ValueError(f"{len(data)} bytes do not fill a {dtype} tensor of shape {shape}")
    tensor = torch.empty(shape, dtype=dtype)
    if elements:
        view_bytes(tensor)[:] = data
    return tensor


def read_range(tensor: Tensor, start: int, stop: int) -> memoryview:
    """Bytes start..stop of `view_bytes(tensor)`, without a copy of the whole.

    start, stop: whole elements
    """
    size = tensor.dtype.itemsize
    plain = tensor.detach().resolve_conj().resolve_neg()
    parts = _parts(plain, start // size, stop // size)
    return view_bytes(torch.cat([part.reshape(-1) for part in parts]))


@torch.no_grad()
def write_range(tensor: Tensor, start: int, data: memoryview) -> None:
    """Put bytes where `read_range` of the same range finds them. Whatever the tensor's strides and
    device are, no copy of the whole is made.
    """
    flat = torch.frombuffer(data, dtype=torch.uint8)
    if flat.data_ptr() % tensor.dtype.itemsize:
        flat = flat.clone()
    values = flat.view(tensor.dtype)
    first = start // tensor.dtype.itemsize
    for part in _parts(tensor.detach(), first, first + len(values)):
        count = part.numel()
        part.copy_(values[:count].view(part.shape))
        values = values[count:]


def _parts(tensor: Tensor, start: int, stop: int) -> Iterator[Tensor]:
    """Views that in this order make up elements start..stop of the tensor in logical order."""
    if tensor.is_contiguous():
        yield tensor.view(-1)[start:stop]
    elif tensor.dim() == 1:
        yield tensor[start:stop]
    else:
        row = tensor[0].numel()
        while start < stop:
            at, within = divmod(start, row)
            if within or stop - start < row:
                end = min(stop, (at + 1) * row)
                yield from _parts(tensor[at], within, end - at * row)
            else:
                end = stop - stop % row
                yield tensor[at : end // row]
            start = end
