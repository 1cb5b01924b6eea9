"""Many small tensors as one run of bytes, in a few calls of torch instead of some for each."""

import math
from collections.abc import Iterator, Mapping

import msgspec
import torch
from torch import Tensor

from trainmover.state import tensor_bytes

_Kind = tuple[torch.dtype, torch.device]
_Fit = tuple[str, torch.dtype, torch.device, torch.Size]
_Place = tuple[str, str, list[int]]


class Flat:
    """Keeps how tensors of the same form were laid out the last time."""

    def __init__(self) -> None:
        self._of: list[_Fit] = []
        self._groups: list[list[int]] = []
        self._fit = b""

    def fit(self, tensors: Mapping[str, Tensor]) -> bytes:
        """Name, dtype and shape of each, in the order of the bytes, as msgpack: it is the same for
        as long as their forms are."""
        self._lay_out(tensors)
        return self._fit

    def read(self, tensors: Mapping[str, Tensor]) -> bytes:
        """The bytes of all, in the order of `fit`: by dtype and device."""
        self._lay_out(tensors)
        values = list(tensors.values())
        return b"".join(
            tensor_bytes.view_bytes(torch.cat([values[i].detach().reshape(-1) for i in group]))
            for group in self._groups
        )

    def write(self, tensors: Mapping[str, Tensor], data: bytes) -> None:
        """Put them back, into the same tensors."""
        for name, value in unflatten(self.fit(tensors), data):
            tensors[name].copy_(value)

    def _lay_out(self, tensors: Mapping[str, Tensor]) -> None:
        """Anew if some tensor has another form than the last time. (Not by identity: a tensor that
        is put in another's place may get its number.)"""
        of = [(name, each.dtype, each.device, each.shape) for name, each in tensors.items()]
        if of == self._of:
            return
        groups: dict[_Kind, list[int]] = {}
        for index, tensor in enumerate(tensors.values()):
            groups.setdefault((tensor.dtype, tensor.device), []).append(index)
        self._groups = list(groups.values())
        names, values = list(tensors), list(tensors.values())
        places = [
            [names[i], tensor_bytes.dtype_name(values[i].dtype), list(values[i].shape)]
            for group in self._groups
            for i in group
        ]
        self._fit = msgspec.msgpack.encode(places)
        self._of = of


def unflatten(fit: bytes, data: bytes) -> Iterator[tuple[str, Tensor]]:
    """Each by its name, as a new tensor on the CPU. Raises ValueError if the sizes do not fit."""
    view, offset = memoryview(data), 0
    for name, dtype_name, shape in msgspec.msgpack.decode(fit, type=list[_Place]):
        dtype = tensor_bytes.DTYPES[dtype_name]
        size = math.prod(shape) * dtype.itemsize
        yield name, tensor_bytes.from_bytes(view[offset : offset + size], dtype, tuple(shape))
        offset += size
