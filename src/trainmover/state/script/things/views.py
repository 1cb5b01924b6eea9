# SPDX-License-Identifier: Apache-2.0
"""Memory of what is tracked: a variable that shows it (a numpy view of a parameter, an alias of a
buffer) has no value of its own. Which part it shows is compared, not what lies there."""

import bisect
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from trainmover.state import tensor_bytes
from trainmover.state.encode import as_local


class Views:
    """Of the tensors that modules and optimizers held when this was made."""

    def __init__(self, tracked: Iterable[tuple[str, object]] = ()) -> None:
        known: dict[int, tuple[str, weakref.ref[Tensor]]] = {}
        for path, tensor in _tensors(tracked):
            local = as_local(tensor)
            if tensor_bytes.is_plain(local) and local.nbytes and not local.is_meta:
                known.setdefault(_storage(local)[0], (path, weakref.ref(tensor)))
        self._starts = sorted(known)
        self._known = known

    def shown_by(self, value: Any) -> list[Any] | None:
        """Which tensor's memory it shows, from which byte on; None: none of them."""
        address = _address(value)
        if not address or not self._starts:
            return None
        start = self._starts[bisect.bisect_right(self._starts, address) - 1]
        path, reference = self._known[start]
        tensor = reference()
        if tensor is None:
            return None
        # The script may have given it other memory.
        its_start, its_bytes = _storage(as_local(tensor))
        if its_start != start or not start <= address < start + its_bytes:
            return None
        return [path, address - start]


def _tensors(tracked: Iterable[tuple[str, object]]) -> Iterator[tuple[str, Tensor]]:
    for name, obj in tracked:
        if isinstance(obj, nn.Module):
            for path, tensor in [*obj.named_parameters(), *obj.named_buffers()]:
                yield f"{name}.{path}", tensor
        elif isinstance(obj, torch.optim.Optimizer):
            for number, state in enumerate(list(obj.state.values())):
                for key, entry in state.items() if isinstance(state, dict) else ():
                    if isinstance(entry, Tensor):
                        yield f"{name}.{number}.{key}", entry


def _storage(tensor: Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def _address(value: Any) -> int:
    if isinstance(value, numpy.ndarray):
        return int(value.__array_interface__["data"][0]) if value.size else 0
    return int(value.data_ptr()) if value.numel() else 0
