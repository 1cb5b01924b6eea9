# SPDX-License-Identifier: Apache-2.0
"""A hash of each batch, so that one that is drawn again is known to be the same.

What a batch holds is hashed up to a mebibyte; of larger ones blocks all over it.
"""

from collections.abc import Iterator, Mapping
from itertools import compress
from typing import Any

import numpy
import torch
import xxhash
from torch import Tensor

from trainmover.state import tensor_bytes

BYTES_MAX = 1024 * 1024
_BLOCKS = 16
_ENTRIES_MAX = 256
"""Of one list or dict: what is longer is hashed in places spread over it."""
_DEPTH_MAX = 6
_FORMS_MAX = 256


def batch_hash(batch: Any) -> int:
    """Return a hash of all of a batch, or of blocks all over a large one."""
    is_leaf = type(batch) is Tensor and not batch.is_nested
    leaves = [batch] if is_leaf else list(_leaves(batch, 0))
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
        if size <= BYTES_MAX:
            digest.update(tensor_bytes.memory_of(leaf) or tensor_bytes.view_bytes(leaf.detach()))
        else:
            for block in _blocks(leaf.detach(), leaf.nbytes * BYTES_MAX // size):
                digest.update(block)
    return digest.intdigest()


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
