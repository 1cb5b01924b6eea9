# SPDX-License-Identifier: Apache-2.0
"""Tensors of samplers as a pass began, where the script has changed them since: weights that follow
the losses. A pass that is begun again draws from what they were.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from trainmover.torch_internals.tensors import version_of
from trainmover.worker.data.loader_parts import parts

_BYTES_MAX = 1 << 20
"""Of one. A larger one goes with no position."""


class PassTensors:
    """Of one pass, as it begins now."""

    def __init__(self, loader: Any) -> None:
        self._begun = {
            path: (tensor, version_of(tensor), tensor.clone())
            for path, tensor in _tensors_of(loader).items()
        }

    def changed(self) -> dict[str, Tensor]:
        """Return those that were written to since, as they were."""
        return {
            path: before
            for path, (tensor, version, before) in self._begun.items()
            if version_of(tensor) != version
        }

    @contextmanager
    def as_begun(self, before: Mapping[str, Tensor]) -> Iterator[None]:
        """Have them hold what they held as the pass began elsewhere; afterwards, as now."""
        now = {path: self._begun[path][0] for path in before if path in self._begun}
        held = {path: tensor.clone() for path, tensor in now.items()}
        with torch.no_grad():
            for path, tensor in now.items():
                tensor.copy_(before[path])
                self._begun[path] = (tensor, -1, before[path])
            yield
            for path, tensor in now.items():
                tensor.copy_(held[path])


def _tensors_of(loader: Any) -> dict[str, Tensor]:
    return {
        f"{path}.{name}": value
        for path, part in parts(loader)
        for name, value in getattr(part, "__dict__", {}).items()
        if isinstance(value, Tensor) and value.is_cpu and value.nbytes <= _BYTES_MAX
    }
