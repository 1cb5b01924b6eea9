# SPDX-License-Identifier: Apache-2.0
"""A hash of each batch, so that one that is drawn again is known to be the same.

What a batch holds is hashed on the main thread, up to a mebibyte of it; of larger ones blocks all
over it, and the whole off that thread, while the step computes. A step may write into its batch
meanwhile: then the blocks are other ones at the end, and the hash of the whole is dropped.
"""

import os
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import compress
from typing import Any

import numpy
import torch
import xxhash
from torch import Tensor

from trainmover.state import tensor_bytes

QUICK_BYTES_MAX = 1024 * 1024
_BLOCKS = 16
_ENTRIES_MAX = 256
"""Of one list or dict: what is longer is hashed in places spread over it."""
_DEPTH_MAX = 6
_FORMS_MAX = 256


class BatchHash:
    """Of one batch.

    quick  of all of it, or of blocks of it
    """

    def __init__(self, batch: Any, *, whole: bool = True) -> None:
        is_leaf = type(batch) is Tensor and not batch.is_nested
        leaves = [batch] if is_leaf else list(_leaves(batch, 0))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self.quick, size = _quick(leaves)
        self._whole: Future[int] | None = None
        if whole and size > QUICK_BYTES_MAX:
            quick = self.quick if len(tensors) == len(leaves) else _quick(tensors)[0]
            self._whole = _hasher.begin(tensors, quick)

    @property
    def pair(self) -> list[int]:
        """Quick one, and that of the whole of a large batch; 0: there is none, or not yet."""
        done = self._whole is not None and self._whole.done()
        return [self.quick, self._whole.result() if done and self._whole is not None else 0]

    def differs_from(self, pair: list[int]) -> bool:
        """Whether the batch that this `pair` is of was another one. Waits for a hash of it all."""
        whole = 0 if self._whole is None else self._whole.result()
        return self.quick != pair[0] or (whole != pair[1] and 0 not in (whole, pair[1]))


class _Hasher:
    """A thread that hashes whole batches, one after the other; begun with the first."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[list[Tensor], int, Future[int]]] = queue.SimpleQueue()
        self._pid = 0

    def begin(self, tensors: list[Tensor], quick: int) -> "Future[int]":
        """0 if they were written to meanwhile: if `quick` is not theirs any more."""
        if self._pid != os.getpid():  # Threads do not come along into a fork.
            self._pid = os.getpid()
            threading.Thread(target=self._run, name="tm-batch", daemon=True).start()
        hashed: Future[int] = Future()
        self._asked.put((tensors, quick, hashed))
        return hashed

    def _run(self) -> None:
        while True:
            tensors, quick, hashed = self._asked.get()
            try:
                hashed.set_result(_whole(tensors, quick))
            except BaseException as error:  # noqa: BLE001  Raised where it is waited for.
                hashed.set_exception(error)
            del tensors, hashed


_hasher = _Hasher()


def _leaves(value: Any, depth: int) -> Iterator[Tensor | bytes]:
    """Its tensors, and all else as bytes that are the same in every process."""
    if isinstance(value, Tensor):
        yield from value.unbind() if value.is_nested else (value,)
    elif value is None or isinstance(value, str | bytes | int | float | complex):
        yield repr(value).encode(errors="surrogatepass")
    elif isinstance(value, numpy.ndarray | numpy.generic):
        plain = value.dtype.kind in "biufc"
        yield repr((value.dtype.str, value.shape)).encode()
        yield numpy.ascontiguousarray(value).tobytes() if plain else b""
    elif depth == _DEPTH_MAX:
        yield type(value).__name__.encode()
    elif isinstance(value, Mapping):
        yield f"{type(value).__name__} {len(value)}".encode()
        for key in _spread(list(value)):
            yield from _leaves(key, depth + 1)
            yield from _leaves(value[key], depth + 1)
    elif isinstance(value, list | tuple):
        yield f"{type(value).__name__} {len(value)}".encode()
        for entry in _spread(value):
            yield from _leaves(entry, depth + 1)
    else:
        yield type(value).__name__.encode()
        yield from _leaves(getattr(value, "__dict__", None), depth + 1)


def _spread(values: Any) -> Any:
    step = -(-len(values) // _ENTRIES_MAX)
    return values[::step] if step > 1 else values


def _quick(leaves: Sequence[Tensor | bytes]) -> tuple[int, int]:
    """Hash, and how many bytes there are."""
    digest = xxhash.xxh3_64()
    readable = [isinstance(leaf, Tensor) and _is_readable(leaf) for leaf in leaves]
    size = sum([leaf.nbytes for leaf in compress(leaves, readable) if isinstance(leaf, Tensor)])
    for leaf, is_readable in zip(leaves, readable, strict=True):
        if not isinstance(leaf, Tensor):
            digest.update(leaf)
            continue
        digest.update(_kind(leaf))
        if not is_readable:
            continue
        if size <= QUICK_BYTES_MAX:
            digest.update(tensor_bytes.memory_of(leaf) or tensor_bytes.view_bytes(leaf.detach()))
        else:
            for block in _blocks(leaf.detach(), leaf.nbytes * QUICK_BYTES_MAX // size):
                digest.update(block)
    return digest.intdigest(), size


def _whole(tensors: list[Tensor], quick: int) -> int:
    digest = xxhash.xxh3_64()
    for tensor in tensors:
        if _is_readable(tensor):
            digest.update(tensor_bytes.view_bytes(tensor.detach()))
    return digest.intdigest() if _quick(tensors)[0] == quick else 0


_Form = tuple[torch.dtype, torch.Size]
_written: dict[_Form, bytes] = {}


def _kind(tensor: Tensor) -> bytes:
    """Written once for each form: batches of a loader mostly have the same."""
    form = tensor.dtype, tensor.shape
    known = _written.get(form)
    if known is None:
        if len(_written) >= _FORMS_MAX:
            _written.clear()
        known = _written[form] = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    return known


def _is_readable(tensor: Tensor) -> bool:
    """Without waiting for a device, and as bytes."""
    return tensor.is_cpu and tensor_bytes.is_plain(tensor)


def _blocks(tensor: Tensor, allowed: int) -> Iterator[Any]:
    """Bytes of a tensor all over it, `allowed` altogether or a little more."""
    if not tensor.is_contiguous():
        rows = tensor[:: max(1, -(-tensor.nbytes // max(1, allowed)))]
        yield tensor_bytes.view_bytes(rows)[:allowed]
        return
    data = tensor_bytes.view_bytes(tensor)
    length = max(1, allowed // _BLOCKS)
    for number in range(_BLOCKS):
        at = (len(data) - length) * number // (_BLOCKS - 1)
        yield data[at : at + length]
