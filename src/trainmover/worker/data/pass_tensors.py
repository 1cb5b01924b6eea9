# SPDX-License-Identifier: Apache-2.0
"""Tensors of samplers as a pass began, where the script has changed them since: weights that follow
the losses. A pass that is begun again draws from what they were.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor

from trainmover.torch_internals.tensors import version_of
from trainmover.worker.data.loader_parts import parts

_BYTES_MAX = 1 << 20
"""Of one. A larger one goes with no position."""


class _Begun(NamedTuple):
    """A sampler's attribute as a pass began. tensor: the very one; None: it was another, before"""

    attributes: dict[str, Any]
    name: str
    tensor: Tensor | None
    version: int
    before: Tensor

    @property
    def is_changed(self) -> bool:
        """Whether it is another tensor by now, or was written to."""
        now = self.attributes.get(self.name)
        return now is not self.tensor or now is None or version_of(now) != self.version


class PassTensors:
    """Tensors of one pass, as it begins now."""

    def __init__(self, loader: Any) -> None:
        self._begun = dict(_tensors_of(loader))

    def changed(self) -> dict[str, Tensor]:
        """Return those that are others since, or were written to, as they were."""
        return {path: one.before for path, one in self._begun.items() if one.is_changed}

    @contextmanager
    def as_begun(self, before: Mapping[str, Tensor]) -> Iterator[None]:
        """Have samplers hold what they held as the pass began elsewhere; afterwards, as now."""
        known = {path: self._begun[path] for path in before if path in self._begun}
        now = {path: one.attributes[one.name] for path, one in known.items()}
        for path, one in known.items():
            one.attributes[one.name] = before[path].clone()
            self._begun[path] = one._replace(tensor=None, before=before[path])
        try:
            yield
        finally:
            for path, one in known.items():
                one.attributes[one.name] = now[path]


def _tensors_of(loader: Any) -> Iterator[tuple[str, _Begun]]:
    for path, part in parts(loader):
        attributes = getattr(part, "__dict__", {})
        for name, value in attributes.items():
            if isinstance(value, Tensor) and value.is_cpu and value.nbytes <= _BYTES_MAX:
                version = version_of(value)
                yield f"{path}.{name}", _Begun(attributes, name, value, version, value.clone())
