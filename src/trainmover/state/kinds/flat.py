# SPDX-License-Identifier: Apache-2.0
"""Many small tensors as one run of bytes, in a few calls of torch instead of some for each; and in
one of Python's, as long as they lie in memory where they lay."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import torch
from torch import Tensor

from trainmover.asked import Answers, Pieces, Words, are
from trainmover.state import tensor_bytes
from trainmover.torch_internals.memory import words_of
from trainmover.torch_internals.tensors import ADDRESS, FORM

_Kind = tuple[torch.dtype, torch.device]
_Fit = tuple[str, torch.dtype, torch.device, torch.Size]
_Place = tuple[str, str, list[int]]


class Memory:
    """Tensors that were seen, and where their bytes lie."""

    def __init__(self) -> None:
        self._values: list[Tensor] = []
        # What their memory depends on: a tensor may be given other memory, of another form
        # (`.data = ...`), and stay the same object. Not its version: bytes are read, whoever has
        # written them.
        self._places = Answers(ADDRESS, *FORM)
        self._words: Words | None = None  # Which show the same, where they can be read.
        self._pieces: Pieces | None = None

    def holds(self, values: list[Tensor]) -> bool:
        """Whether they are the tensors that were noted, which lie where they lay, in one form.
        False if their bytes cannot be read so."""
        if self._pieces is None or not are(values, self._values):
            return False
        return (self._words is not None and self._words.same()) or self._places.same(values)

    def note(self, values: list[Tensor], order: Iterable[int]) -> None:
        """order: of their bytes"""
        self._values, self._pieces, self._words = list(values), None, None
        if all(map(_is_readable, values)):
            self._places.note(self._values)
            self._words = words_of(self._values, form=True)
            parts = [values[index] for index in order]
            self._pieces = Pieces([one.data_ptr() for one in parts], [one.nbytes for one in parts])

    def read(self) -> bytes:
        """The bytes of all: the same object as long as they are equal. To be called only where
        `holds` has said so."""
        assert self._pieces is not None
        return self._pieces.read()


def _is_readable(tensor: Tensor) -> bool:
    """As one run of bytes."""
    if type(tensor) is not Tensor or not tensor_bytes.is_plain(tensor):
        return False
    return tensor_bytes.shares_bytes(tensor) and bool(tensor.data_ptr() or not tensor.nbytes)


class Flat:
    """Keeps how tensors of the same form were laid out the last time."""

    def __init__(self) -> None:
        self._of: list[_Fit] = []
        self._groups: list[list[int]] = []
        self._fit = b""
        self._memory = Memory()

    def state(self, names: Sequence[str], values: list[Tensor]) -> tuple[bytes, bytes]:
        """Name, dtype and shape of each, in the order of the bytes, as msgpack: it is the same for
        as long as their forms are. And the bytes of all, in that order: by dtype and device."""
        if self._memory.holds(values):
            return self._fit, self._memory.read()
        self._lay_out(dict(zip(names, values, strict=True)))
        self._memory.note(values, [index for group in self._groups for index in group])
        data = b"".join(
            tensor_bytes.view_bytes(torch.cat([values[i].detach().reshape(-1) for i in group]))
            for group in self._groups
        )
        return self._fit, data

    def fit(self, tensors: Mapping[str, Tensor]) -> bytes:
        """The first part of that."""
        self._lay_out(tensors)
        return self._fit

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
        names, values = list(tensors), list(tensors.values())
        self._groups = grouped(values)
        places = [
            [names[i], tensor_bytes.dtype_name(values[i].dtype), list(values[i].shape)]
            for group in self._groups
            for i in group
        ]
        self._fit = msgspec.msgpack.encode(places)
        self._of = of


def grouped(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Their numbers, by dtype and device."""
    groups: dict[_Kind, list[int]] = {}
    for index, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(index)
    return list(groups.values())


def unflatten(fit: bytes, data: bytes) -> Iterator[tuple[str, Tensor]]:
    """Each by its name, as a new tensor on the CPU. Raises ValueError if the sizes do not fit."""
    view, offset = memoryview(data), 0
    for name, dtype_name, shape in msgspec.msgpack.decode(fit, type=list[_Place]):
        dtype = tensor_bytes.DTYPES[dtype_name]
        size = math.prod(shape) * dtype.itemsize
        yield name, tensor_bytes.from_bytes(view[offset : offset + size], dtype, tuple(shape))
        offset += size


def shapes_in(fit: bytes, size: int) -> dict[str, list[int]]:
    """Of what `fit` is of, by name; {} if that would not be so many bytes."""
    try:
        places = msgspec.msgpack.decode(fit, type=list[_Place])
        sizes = [math.prod(shape) * tensor_bytes.DTYPES[kind].itemsize for _, kind, shape in places]
    except (msgspec.MsgspecError, KeyError):
        return {}
    fits = sum(sizes) == size and all(n >= 0 for _, _, shape in places for n in shape)
    return {name: shape for name, _, shape in places} if fits else {}
