# SPDX-License-Identifier: Apache-2.0
"""Windows of memory in which every change of a tensor's form, gradient or storage shows.

No header of torch is known here. `memory.LAYOUT` says where a tensor keeps its storage and its
form; this module finds where autograd keeps a gradient and its flags, from tensors whose answers
are known. Where anything is otherwise, there are no windows, and torch is asked as ever.

Windows are in order: each one is at its address as long as those before it are unchanged.
"""

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, UntypedStorage, nn
from torch._C import TensorBase

from trainmover.asked import WindowPlan
from trainmover.torch_internals.memory import (
    LAYOUT,
    WORD_BYTES,
    read_at,
    word_at,
    words_in,
)

Window = tuple[int, int]
"""Address and size in bytes."""

_PYTHONS = object.__basicsize__
_FORM_BEFORE, _FORM_BYTES, _HEAD_BYTES = 88, 112, 176
_DIMENSIONS = 5
"""Dimensions up to which a tensor keeps its form in itself."""
_META_BYTES, _STORAGE_BYTES = 256, 80
_VERSION_BYTES = 4
_SIZE = 77_773


class AutogradLayout(NamedTuple):
    """Offsets in bytes.

    meta       in the object of a tensor: address of what autograd keeps of it, or 0
    meta_size  bytes there that hold gradient, function, hooks and flags
    gradient   there: address of the gradient
    volatile   there: words that change as a graph uses a leaf, and are no state
    nbytes     in the object of a storage: its size
    """

    meta: int
    meta_size: int
    gradient: int
    volatile: tuple[int, ...]
    nbytes: int


def windows_of(tensor: Tensor, *, version: bool, gradient: bool) -> WindowPlan | None:
    """Return where the windows of a dense tensor lie, but its content; None: it must be asked.

    version   include the counter of writes, by which views of it know theirs
    gradient  include which gradient it has
    """
    return _PLANS[version, gradient] if tensor.dim() <= _DIMENSIONS else None


def _plan(*, version: bool, gradient: bool) -> WindowPlan | None:
    layout, more = LAYOUT, AUTOGRAD
    if layout is None or more is None:
        return None
    first = min(layout.storage, more.meta, layout.version)
    places = [
        ([_PYTHONS], TensorBase.__basicsize__ - _PYTHONS),
        ([_PYTHONS, 0], WORD_BYTES),
        ([_PYTHONS, first], layout.offset - _FORM_BEFORE + _FORM_BYTES - first),
        ([_PYTHONS, layout.storage, layout.data], more.nbytes + WORD_BYTES - layout.data),
    ]
    left_out = more.volatile if gradient else (*more.volatile, more.gradient)
    for start, size in _around(left_out, more.meta_size):
        places.append(([_PYTHONS, more.meta, start], size))
    if version:
        places.append(([_PYTHONS, layout.version, layout.counted], _VERSION_BYTES))
    return WindowPlan(places, [_PYTHONS, 0], layout.kind)


def _around(left_out: tuple[int, ...], size: int) -> Iterator[Window]:
    """Give the ranges of so many bytes that lie around these words."""
    start = 0
    for word in (*sorted(left_out), size):
        if word > start:
            yield start, word - start
        start = word + WORD_BYTES


def windows_of_storage(storage: UntypedStorage) -> list[Window] | None:
    """Return the windows that show where a storage's memory lies, and its size."""
    if LAYOUT is None or AUTOGRAD is None:
        return None
    data = LAYOUT.data
    return [(storage._cdata + data, AUTOGRAD.nbytes + WORD_BYTES - data)]


def _found() -> AutogradLayout | None:
    """Return where autograd keeps its part; None if it is not as it is looked for."""
    if LAYOUT is None:
        return None
    plain, leaf = torch.empty(3), nn.Parameter(torch.empty(3))
    heads = words_in(_head(plain)), words_in(_head(leaf))
    places = [n for n, (a, b) in enumerate(zip(*heads, strict=True)) if not a and b > 1 << 16]
    if len(places) != 1:
        return None
    meta = places[0] * WORD_BYTES
    parts, nbytes = _parts_of_meta(leaf, word_at(leaf._cdata + meta)), _nbytes_at()
    if parts is None or nbytes is None:
        return None
    layout = AutogradLayout(meta, *parts, nbytes)
    if nbytes < LAYOUT.data or max(LAYOUT.storage, meta, LAYOUT.version) > LAYOUT.offset:
        return None
    return layout if _shows_all(layout) else None


def _head(tensor: Tensor) -> bytes:
    return ctypes.string_at(tensor._cdata, _HEAD_BYTES)


def _parts_of_meta(leaf: Tensor, meta: int) -> tuple[int, int, tuple[int, ...]] | None:
    """Return how far the flags reach, to the first word that follows one, and the gradient's place;
    and which words change as a graph uses the leaf.

    The gradient stands before the flags.
    """
    unused = words_in(read_at(meta, _META_BYTES))
    graph = leaf.exp()  # It keeps what collects the leaf's gradient.
    used = words_in(read_at(meta, _META_BYTES))
    volatile = [
        n * WORD_BYTES
        for n, pair in enumerate(zip(unused, used, strict=True))
        if pair[0] != pair[1]
    ]
    del graph
    leaf.grad = torch.ones(3)
    words = words_in(read_at(meta, _META_BYTES))
    if words.count(leaf.grad._cdata) != 1:
        return None
    first = words.index(leaf.grad._cdata) + 1
    seen = []
    for is_on in (True, False, True, False):
        leaf.requires_grad_(is_on)
        seen.append(words_in(read_at(meta, _META_BYTES)))
    flags = [
        at
        for at in range(first, len(words))
        if [now[at] & 0xFF for now in seen] == [1, 0, 1, 0] and seen[0][at] == seen[2][at]
    ]
    if not flags:
        return None
    size = (flags[0] + 1) * WORD_BYTES
    return size, (first - 1) * WORD_BYTES, tuple(one for one in volatile if one < size)


def _nbytes_at() -> int | None:
    storage = torch.empty(_SIZE, dtype=torch.uint8).untyped_storage()
    words = words_in(read_at(storage._cdata, _STORAGE_BYTES))
    return words.index(_SIZE) * WORD_BYTES if words.count(_SIZE) == 1 else None


def _shows_all(layout: AutogradLayout) -> bool:
    """Tell whether each change of a leaf shows in its words."""
    leaf: Any = nn.Parameter(torch.empty(3))

    def seen() -> bytes:
        return read_at(word_at(leaf._cdata + layout.meta), layout.meta_size)

    def noted(change: Any) -> bool:
        before = seen()
        change()
        return seen() != before

    changes = (
        lambda: setattr(leaf, "grad", torch.ones(3)),
        lambda: setattr(leaf, "grad", torch.ones(3)),
        lambda: leaf.register_hook(lambda grad: grad),
        lambda: leaf.register_post_accumulate_grad_hook(lambda _: None),
        lambda: leaf.requires_grad_(False),
        lambda: setattr(leaf, "grad", None),
    )
    kept = []  # An address that is free again may be given to what comes next.
    for change in changes:
        kept.append(leaf.grad)
        if not noted(change):
            return False
    made = torch.empty(3)
    before = word_at(made._cdata + layout.meta)
    made.add_(nn.Parameter(torch.ones(3)))
    return word_at(made._cdata + layout.meta) != before


AUTOGRAD = _found()
_PLANS = {
    (version, gradient): _plan(version=version, gradient=gradient)
    for version in (False, True)
    for gradient in (False, True)
}
