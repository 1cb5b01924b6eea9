# SPDX-License-Identifier: Apache-2.0
"""Ways to write to a tensor's memory past its version counter: `.data`, numpy's view of it, DLPack.

What is written there leaves no mark, so the making of such an alias is what can be seen: torch's
own ways to make one are wrapped, and tell it before the script has the alias in its hands. Nothing
is asked of a step that makes none. `asarray` and `numpy.from_dlpack` come by here too; memory that
was numpy's before it was a tensor's (`from_numpy`), or is reached by its address, does not.
"""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn

from trainmover.torch_internals.tensors import local_of

_PLAIN = (Tensor, nn.Parameter)
_data: Any = Tensor.data
_numpy: Any = Tensor.numpy
_dlpack: Any = Tensor.__dlpack__


class Aliases:
    """Of this process. In any thread.

    about_to  called with the address of the storage of which one is made; None: nobody asks
    met       addresses of storages that somebody wants to know of, and has made one of
    """

    def __init__(self) -> None:
        self.about_to: Callable[[int], None] | None = None
        self.met: set[int] = set()
        self._wanted: set[int] = set()
        self._fresh: dict[int, tuple[weakref.ref[Any], int]] = {}

    def watch(self) -> None:
        """From here on they are noted."""
        kind: Any = Tensor
        kind.data = property(_get_data, _set_data, doc=_data.__doc__)
        kind.numpy, kind.__dlpack__ = _get_numpy, _get_dlpack

    def want(self, starts: Iterable[int]) -> None:
        """Note in `met` if one is made of these storages, or is held already."""
        self._wanted.update(starts)
        held = [start for alias, start in self._fresh.values() if alias() is not None]
        self.met.update(self._wanted.intersection(held))

    def take_fresh(self) -> list[tuple["weakref.ref[Any]", int]]:
        """Those made since this was called last that somebody still holds, or a view of them; each
        with the address of its storage."""
        if not self._fresh:
            return []
        fresh, self._fresh = self._fresh, {}
        return list(fresh.values())

    def made(self, tensor: Tensor, alias: object) -> None:
        """A view of `alias` keeps it: an array is the base of its views, and so is a tensor."""
        if not (start := storage_of(tensor)):
            return
        if start in self._wanted:
            self.met.add(start)
        if self.about_to is not None:
            self.about_to(start)
        key = id(alias)
        self._fresh[key] = weakref.ref(alias, lambda _: self._fresh.pop(key, None)), start


def storage_of(tensor: Tensor) -> int:
    """Address of the memory that it lies in, as far as it is here; 0: none that is its own."""
    if type(tensor) not in _PLAIN:
        if not hasattr(tensor, "device_mesh"):
            return 0  # Fake, functional: somebody traces.
        tensor = local_of(tensor)
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # Sparse, or inside a transform.
        return 0


aliases = Aliases()


def _get_data(tensor: Tensor) -> Tensor:
    alias: Tensor = _data.__get__(tensor)
    aliases.made(tensor, alias)
    return alias


def _set_data(tensor: Tensor, value: Tensor) -> None:
    _data.__set__(tensor, value)


def _get_numpy(tensor: Tensor, *, force: bool = False) -> Any:
    alias = _numpy(tensor, force=force)
    aliases.made(tensor, alias)
    return alias


_get_numpy.__name__ = "numpy"  # By which Dynamo knows it for a method of tensors.


def _get_dlpack(tensor: Tensor, **options: Any) -> Any:
    """The capsule says nothing of who has it later: for as long as the tensor lives."""
    capsule = _dlpack(tensor, **options)
    aliases.made(tensor, tensor)
    return capsule
