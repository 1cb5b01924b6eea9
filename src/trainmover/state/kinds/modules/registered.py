# SPDX-License-Identifier: Apache-2.0
"""What modules come by while the script runs: buffers they register, layers they are given.

Torch says so as it happens, so nobody need look for them in each step; but for what compiled code
does as it is traced.
"""

import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
)

from trainmover.torch_internals.modules import has_buffer, parts_of
from trainmover.torch_internals.tensors import version_of

_KNOWN = 256

Seen = tuple[Tensor | None, int]
"""What stands in a buffer's place, and its version."""

_ANOTHER: Seen = (None, -2)


def version(tensor: Tensor | None) -> int:
    """Of a tensor made in inference mode none is counted."""
    return -1 if tensor is None or tensor.is_inference() else version_of(tensor)


class Registered:
    """Of one process, once it watches.

    buffers  how many any module has registered
    layers   how many any was given under a name that was free
    """

    def __init__(self) -> None:
        self.buffers = self.layers = 0
        self._buffers: deque[tuple[Any, str, Any, int]] = deque(maxlen=_KNOWN)
        self._given: deque[tuple[int, Any]] = deque(maxlen=_KNOWN)

    def watch(self) -> None:
        """Once a process."""
        register_module_buffer_registration_hook(self._buffer)
        register_module_module_registration_hook(self._layer)

    def _buffer(self, module: nn.Module, name: str, buffer: Tensor | None) -> None:
        if torch.compiler.is_compiling():
            return  # It would be traced.
        if has_buffer(module, name):
            return  # It is set to another tensor, which torch tells here too.
        self.buffers += 1
        known = None if buffer is None else weakref.ref(buffer)
        self._buffers.append((weakref.ref(module), name, known, version(buffer)))

    def _layer(self, module: nn.Module, name: str, layer: nn.Module | None) -> None:
        if torch.compiler.is_compiling():
            return
        if name in parts_of(module):
            return  # Each time that the line is run again, too.
        self.layers += 1
        self._given.append((self.layers, weakref.ref(module)))

    def buffer(self, part: nn.Module, name: str) -> Seen | None:
        """How it was registered, since it may have changed before anybody looks; None if that is
        not known any more."""
        for module, own, buffer, seen in reversed(self._buffers):
            if own == name and module() is part:
                live = None if buffer is None else buffer()
                return _ANOTHER if buffer is not None and live is None else (live, seen)
        return None

    def given_since(self, layers: int, parts: Iterable[nn.Module]) -> bool:
        """Whether one of these was given a layer since there were so many."""
        if self.layers == layers:
            return False
        which = {id(part) for part in parts}
        return any(at > layers and id(module()) in which for at, module in self._given)


registered = Registered()
"""Of this process."""
